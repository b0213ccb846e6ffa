package conformance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"

	"github.com/fairlead/fairlead/dataplane/conformance/internal/process"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

const (
	// startTime is what a provider may take until it answers.
	startTime = 10 * time.Second
	// stopTime is what it may take to end after SIGTERM.
	stopTime = 5 * time.Second
	// lineBytes is how long the line of the handshake may be.
	lineBytes = 4 << 10
)

// peer is the provider that is spoken to: a process of ours, or somebody's.
type peer struct {
	conn   *grpc.ClientConn
	client pb.DataPlaneProviderClient
	proc   *child // nil: not ours
}

// child is a provider that was started here, with pipes of our own: a grandchild that
// holds them must not keep us waiting, and a check wants to close them.
type child struct {
	*process.Process
	pipes []*os.File  // our ends of its output
	line  chan string // the first line of its standard output, if it is started as by an agent
}

func dial(path string) (*peer, error) {
	conn, err := process.Dial(path)
	if err != nil {
		return nil, fmt.Errorf("conformance: %w", err)
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
	if err := p.Listening(ctx, socket); err != nil {
		p.kill()
		return nil, fmt.Errorf("conformance: %w", err)
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

func (s *suite) start(w way, socket string) (*child, error) {
	args, env := slices.Clone(s.target.Args), slices.Clone(s.target.Env)
	if w.child {
		env = append(env, handshake.CookieKey+"="+handshake.CookieValue, handshake.EnvSocketDir+"="+s.dir, handshake.EnvProtocolVersions+"="+strconv.Itoa(handshake.ProtocolVersion))
		env = append(env, w.env...)
	} else if !w.bare {
		args = append(args, "--listen", "unix:"+socket)
	}
	p := &child{Process: process.New(s.target.Exec, args, env), line: make(chan string, 1)}
	p.Cmd.ExtraFiles = w.files
	if err := p.run(w.child); err != nil {
		return nil, fmt.Errorf("conformance: cannot start %s: %w", s.target.Exec, err)
	}
	return p, nil
}

func (p *child) run(greets bool) error {
	outR, outW, err := os.Pipe()
	if err != nil {
		return err
	}
	errR, errW, err := os.Pipe()
	if err != nil {
		return errors.Join(err, outR.Close(), outW.Close())
	}
	p.Cmd.Stdout, p.Cmd.Stderr = outW, errW
	p.pipes = []*os.File{outR, errR}
	err = p.Cmd.Start()
	_, _ = outW.Close(), errW.Close()
	if err != nil {
		_, _ = outR.Close(), errR.Close()
		return err
	}
	go func() { _, _ = io.Copy(&p.Out, errR) }()
	go p.readStdout(outR, greets)
	p.Reap()
	return nil
}

func (p *child) readStdout(r io.Reader, greets bool) {
	if greets {
		reader := bufio.NewReaderSize(r, lineBytes)
		line, _ := reader.ReadSlice('\n') // what is longer is no handshake either
		p.line <- strings.TrimRight(string(line), "\r\n")
		r = reader
	}
	_, _ = io.Copy(&p.Out, r)
}

// greeted waits for the line of the handshake and returns the socket.
func (p *child) greeted(ctx context.Context) (string, error) {
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

// kill ends the process group at once.
func (p *child) kill() {
	p.Kill()
	p.deafen()
}

// stop asks the process to end and reports whether it did in time.
func (p *child) stop() bool {
	_ = p.Cmd.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(stopTime)
	defer timer.Stop()
	select {
	case <-p.Exited:
	case <-timer.C:
	}
	ended := !p.Running()
	p.kill()
	return ended
}

// deafen closes our ends of its output, as the death of a host does.
func (p *child) deafen() {
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
