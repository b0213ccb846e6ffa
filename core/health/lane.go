package health

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// laneWait bounds how long a batch of probes waits for its answers together.
// What takes longer gets a worker of its own.
const laneWait = 5 * time.Millisecond

// laneBytes is what is read of an answer at once.
const laneBytes = 8 << 10

// lane makes the probes that are due together: it opens all, sends all, waits
// once and reads all. Nearly every probe of a healthy node ends here, at the
// price of its own system calls and without a goroutine or a poller.
type lane struct {
	r       *Runner
	reader  *reader
	buf     []byte
	flights []*flight
	fds     []unix.PollFd
}

func newLane(r *Runner) *lane {
	return &lane{r: r, reader: newReader(), buf: make([]byte, laneBytes)}
}

// run ends the probes or hands them to workers.
func (l *lane) run(due []probe) {
	l.flights = l.flights[:0]
	for _, p := range due {
		f := &flight{probe: p, began: time.Now()}
		out, ended := f.start()
		switch {
		case ended:
			l.r.finish(f, out)
		case f.sent:
			l.flights = append(l.flights, f)
		default:
			l.r.hand(f)
		}
	}
	for limit := time.Now().Add(laneWait); len(l.flights) > 0 && l.wait(time.Until(limit)); {
		l.read()
	}
	for _, f := range l.flights {
		l.r.hand(f)
	}
	clear(l.flights)
}

// wait returns once there is something to read; false: not in time.
func (l *lane) wait(most time.Duration) bool {
	l.fds = l.fds[:0]
	for _, f := range l.flights {
		l.fds = append(l.fds, unix.PollFd{Fd: int32(f.conn.fd), Events: unix.POLLIN}) //nolint:gosec // descriptors are small
	}
	for end := time.Now().Add(most); most > 0; most = time.Until(end) {
		n, err := unix.Poll(l.fds, int((most+time.Millisecond-1)/time.Millisecond))
		if !errors.Is(err, unix.EINTR) {
			return err == nil && n > 0
		}
	}
	return false
}

// read takes the answers that are there.
func (l *lane) read() {
	waiting := l.flights[:0]
	for i, f := range l.flights {
		if l.fds[i].Revents == 0 {
			waiting = append(waiting, f)
			continue
		}
		n, err := unix.Read(f.conn.fd, l.buf)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			waiting = append(waiting, f)
			continue
		}
		if err != nil {
			l.r.finish(f, failure(err))
			continue
		}
		rest := io.Reader(soFar{})
		if n == 0 {
			rest = http.NoBody // the end
		}
		out, err := f.answer(l.reader, &prefixed{l.buf[:n], rest})
		switch {
		case errors.Is(err, errMore):
			f.got = append(f.got, l.buf[:n]...)
			l.r.hand(f)
		case time.Since(f.began) > f.timeout:
			l.r.finish(f, failure(os.ErrDeadlineExceeded))
		case err != nil:
			l.r.finish(f, failure(err))
		default:
			l.r.finish(f, out)
		}
	}
	clear(l.flights[len(waiting):])
	l.flights = waiting
}
