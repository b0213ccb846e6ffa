package conformance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

const (
	// startTime is what a provider may take until it answers.
	startTime = 10 * time.Second
	// stopTime is what it may take to end after SIGTERM.
	stopTime = 5 * time.Second
	// tailBytes is how much of its output is kept.
	tailBytes = 4 << 10
)

// peer is the provider that is spoken to: a process of ours, or somebody's.
type peer struct {
	conn   *grpc.ClientConn
	client pb.DataPlaneProviderClient
	proc   *process // nil: not ours
}

// process is a provider that was started here. It is the head of a session, which
// ends with it.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when it ended and was waited for
	out    *tail         // standard error, and standard output unless it is the handshake
	pipes  []*os.File    // our ends of its output
	line   chan string   // the first line of its standard output, in child mode
}

func dial(path string) (*peer, error) {
	conn, err := grpc.NewClient("unix:"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(handshake.MaxReceiveBytes)),
	)
	if err != nil {
		return nil, fmt.Errorf("conformance: %s: %w", path, err)
	}
	return &peer{conn: conn, client: pb.NewDataPlaneProviderClient(conn)}, nil
}

// way is how a process is started.
type way struct {
	child bool       // as an agent does, not with --listen
	bare  bool       // neither: as by hand
	env   []string   // in child mode, besides
	files []*os.File // descriptors 3 and following
}

// launch starts the executable and waits until it listens.
func (s *suite) launch(ctx context.Context, w way) (*peer, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	socket := s.socket()
	p, err := s.start(w, socket)
	if err != nil {
		return nil, err
	}
	if w.child {
		if socket, err = p.greeted(ctx); err != nil {
			p.kill()
			return nil, err
		}
	}
	if err := p.listening(ctx, socket); err != nil {
		p.kill()
		return nil, err
	}
	peer, err := dial(socket)
	if err != nil {
		p.kill()
		return nil, err
	}
	peer.proc = p
	return peer, nil
}

// socket is a path that no process had yet.
func (s *suite) socket() string {
	s.launches++
	return filepath.Join(s.dir, "s"+strconv.Itoa(s.launches))
}

func (s *suite) start(w way, socket string) (*process, error) {
	args, env := slices.Clone(s.target.Args), s.env()
	if w.child {
		env = append(env, handshake.CookieKey+"="+handshake.CookieValue, handshake.EnvSocketDir+"="+s.dir, handshake.EnvProtocolVersions+"="+strconv.Itoa(handshake.ProtocolVersion))
		env = append(env, w.env...)
	} else if !w.bare {
		args = append(args, "--listen", "unix:"+socket)
	}
	p := &process{cmd: exec.Command(s.target.Exec, args...), exited: make(chan struct{}), out: &tail{}, line: make(chan string, 1)}
	p.cmd.Env, p.cmd.ExtraFiles = env, w.files
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := p.run(w.child); err != nil {
		return nil, fmt.Errorf("conformance: cannot start %s: %w", s.target.Exec, err)
	}
	return p, nil
}

// env is the environment of a provider, without a mode.
func (s *suite) env() []string {
	env := []string{"LANG=C.UTF-8"}
	for _, name := range []string{"PATH", "HOME", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return append(env, s.target.Env...)
}

// run starts the process with pipes of our own: a grandchild that holds them
// must not keep us waiting, and a check wants to close them.
func (p *process) run(child bool) error {
	outR, outW, err := os.Pipe()
	if err != nil {
		return err
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		return errors.Join(err, outR.Close(), outW.Close())
	}
	p.cmd.Stdout, p.cmd.Stderr = outW, errW
	p.pipes = []*os.File{outR, errR}
	err = p.cmd.Start()
	_, _ = outW.Close(), errW.Close()
	if err != nil {
		_, _ = outR.Close(), errR.Close()
		return err
	}
	go func() { _, _ = io.Copy(p.out, errR) }()
	go p.readStdout(outR, child)
	go func() {
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	return nil
}

func (p *process) readStdout(r io.Reader, child bool) {
	if child {
		reader := bufio.NewReaderSize(r, tailBytes)
		line, _ := reader.ReadSlice('\n') // what is longer is no handshake either
		p.line <- strings.TrimRight(string(line), "\r\n")
		r = reader
	}
	_, _ = io.Copy(p.out, r)
}

// greeted waits for the line of the handshake and returns the socket.
func (p *process) greeted(ctx context.Context) (string, error) {
	var line string
	select {
	case line = <-p.line:
	case <-ctx.Done():
		return "", fmt.Errorf("it wrote no line on its standard output in %v", startTime)
	}
	parts := strings.Split(line, "|")
	if len(parts) < 5 || parts[0] != "1" || parts[1] != strconv.Itoa(handshake.ProtocolVersion) || parts[2] != "unix" || parts[4] != "grpc" {
		return "", fmt.Errorf("the first line of its standard output is %q, want 1|%d|unix|PATH|grpc|", line, handshake.ProtocolVersion)
	}
	return parts[3], nil
}

// listening waits until somebody answers at the socket.
func (p *process) listening(ctx context.Context, socket string) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := net.Dial("unix", socket)
		if err == nil {
			return c.Close()
		}
		select {
		case <-tick.C:
		case <-p.exited:
			return fmt.Errorf("conformance: the process ended (%v) before it listened at %s: %s", p.cmd.ProcessState, socket, p.out)
		case <-ctx.Done():
			return fmt.Errorf("conformance: nobody listens at %s after %v: %s", socket, startTime, p.out)
		}
	}
}

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// kill ends the process group at once.
func (p *process) kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.exited
	p.deafen()
}

// stop asks the process to end and reports whether it did in time.
func (p *process) stop() bool {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(stopTime)
	defer timer.Stop()
	select {
	case <-p.exited:
	case <-timer.C:
	}
	ended := !p.running()
	p.kill()
	return ended
}

// deafen closes our ends of its output, as the death of a host does.
func (p *process) deafen() {
	for _, f := range p.pipes {
		_ = f.Close()
	}
}

func (p *peer) close() {
	_ = p.conn.Close()
	if p.proc != nil {
		p.proc.stop()
	}
}

// tail keeps the end of what is written to it.
type tail struct {
	mu    sync.Mutex
	bytes []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bytes = append(t.bytes, b...)
	if n := len(t.bytes) - tailBytes; n > 0 {
		t.bytes = append(t.bytes[:0], t.bytes[n:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.bytes) == 0 {
		return "it wrote nothing"
	}
	return fmt.Sprintf("%q", t.bytes)
}
