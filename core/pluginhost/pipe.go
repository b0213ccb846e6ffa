package pluginhost

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// maxLateBytes is what a pipe holds (pipe(7)): all that a process can have written last.
const maxLateBytes = 64 << 10

// pipe reads what a process writes. Once the deadline for that is over it still reads,
// without waiting, what is in there: the last words of a process that ended, however
// late the agent comes to read them.
type pipe struct {
	file *os.File
	late bool // the deadline is over
	left int  // that may be read then: others may hold the pipe, and go on writing
}

func newPipe(f *os.File) *pipe { return &pipe{file: f, left: maxLateBytes} }

// Read returns io.EOF, too, where it is late and nothing is in there.
func (p *pipe) Read(b []byte) (int, error) {
	if !p.late {
		n, err := p.file.Read(b)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		p.late = true
		_ = p.file.SetReadDeadline(time.Time{}) // else nothing can be read at all
	}
	conn, err := p.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	n := 0
	err = conn.Read(func(fd uintptr) bool {
		n, _ = unix.Read(int(fd), b[:min(len(b), p.left)])
		return true
	})
	if err == nil && n <= 0 {
		err = io.EOF
	}
	n = max(0, n)
	p.left -= n
	return n, err
}
