package pluginhost

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

const (
	// drainTime is how long the pipes of a process that ended are read: a
	// grandchild may hold them open for ever.
	drainTime = 200 * time.Millisecond
	// trimInterval is how often the log file of a child that outlives the agent
	// is kept within handshake.MaxLogBytes while it grows, and trimRest while it
	// does not: each look wakes the agent.
	trimInterval = 250 * time.Millisecond
	trimRest     = time.Second
)

// launcher starts children.
type launcher struct {
	run     *runDir
	environ []string
	now     func() time.Time

	mu  sync.Mutex
	rng *rand.Rand
}

// order is one start.
type order struct {
	name     string
	timeout  time.Duration // for the handshake
	outlives bool
	visitor  bool // it is ended soon: nobody is to find it
	log      *slog.Logger
	dropped  prometheus.Counter
}

// child is a process that shook hands, or is about to.
type child struct {
	order   order
	image   *image
	run     *runDir
	dir     string // of this start, with the socket
	socket  string
	environ []string
	out     *output
	drained chan struct{} // closed when the last words are known

	line    io.ReadCloser // the handshake, for go-plugin
	host    *os.File      // our end of the pipe whose end of file is our death
	printed string        // on standard output; valid once drained

	mu   sync.Mutex
	cut  bool     // do not start it any more
	proc *process // written once, by exec
}

// launch starts the plugin and shakes hands. On an error nothing is left.
func (l *launcher) launch(ctx context.Context, img *image, o order) (*child, error) {
	l.mu.Lock()
	dir, err := l.run.begin(l.rng)
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	c := &child{order: o, image: img, run: l.run, dir: dir, environ: l.environ, drained: make(chan struct{})}
	c.out = newOutput(o.log, o.dropped, l.now)
	stop := context.AfterFunc(ctx, c.cutShort)
	defer stop()
	socket, err := shake(c, o.timeout)
	if err == nil && !stop() {
		err = ctx.Err()
	}
	if err == nil {
		c.socket = socket
		if !o.visitor {
			err = c.remember()
		}
	}
	if err != nil {
		c.kill()
		return nil, c.explain(ctx, err)
	}
	return c, nil
}

// exec starts the process; go-plugin calls it with the variables that it adds.
func (c *child) exec(added []string) error {
	p, err := c.image.program(c.dir)
	if err != nil {
		return fmt.Errorf("start %s: %w", c.image.path, err)
	}
	var files cleanup
	defer files.run()
	hostEnd, ours, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", c.image.path, err)
	}
	files.close(hostEnd)
	p.extra = append(p.extra, hostEnd)
	socket := ""
	if c.order.outlives {
		socket = c.run.socket(c.order.name)
		_ = remove(socket)
	}
	p.outlives = c.order.outlives
	p.env = append(added, childEnviron(c.environ, c.dir, socket, firstExtraFD+len(p.extra)-1, p.outlives)...)
	stdout, stderr, err := c.pipes(&p, &files)
	if err == nil {
		err = c.start(p)
	}
	if err != nil {
		_ = ours.Close()
		closeAll(stdout, stderr)
		return c.image.explainStart(err)
	}
	c.host = ours
	c.read(stdout, stderr)
	return nil
}

// pipes makes the standard output and error of p, and returns our ends. files
// takes what is p's alone.
func (c *child) pipes(p *program, files *cleanup) (stdout, stderr *os.File, err error) {
	if stdout, p.stdout, err = os.Pipe(); err != nil {
		return nil, nil, err
	}
	files.close(p.stdout)
	if p.outlives {
		// A pipe would end the process when it next writes after our death.
		p.stderr, err = openLog(c.logPath())
	} else {
		stderr, p.stderr, err = os.Pipe()
	}
	if err == nil {
		files.close(p.stderr)
	}
	return stdout, stderr, err
}

func (c *child) logPath() string { return logPath(c.run, c.order.name) }

func logPath(run *runDir, name string) string { return filepath.Join(run.path, name+".log") }

func openLog(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
}

// boundLog empties a log that has grown too long. Its writers append, so they go on
// at the beginning. It returns how long the log is now, and whether that is other
// than it was.
func boundLog(path string, was int64) (size int64, moved bool) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, was != 0
	}
	size = info.Size()
	if size <= handshake.MaxLogBytes {
		return size, size != was
	}
	_ = os.Truncate(path, 0)
	return 0, true
}

// read starts to read what the process writes, until drainTime after its end, and what is
// there then.
func (c *child) read(stdout, stderr *os.File) {
	var pumps sync.WaitGroup
	line, w := io.Pipe()
	c.line = line
	pumps.Go(func() {
		r := bufio.NewReaderSize(newPipe(stdout), readBufferLen)
		c.printed = firstLine(r, w)
		c.out.copyLines(fromStdout, r)
	})
	if stderr != nil {
		pumps.Go(func() { c.out.copyLines(fromStderr, bufio.NewReaderSize(newPipe(stderr), readBufferLen)) })
	}
	go func() {
		select {
		case <-c.proc.exited:
		case <-c.proc.free:
		}
		deadline := time.Now().Add(drainTime)
		_ = stdout.SetReadDeadline(deadline)
		if stderr != nil {
			_ = stderr.SetReadDeadline(deadline)
		}
		pumps.Wait()
		closeAll(stdout, stderr)
		_ = w.Close()
		c.out.close()
		close(c.drained)
	}()
}

// remember writes down what an agent after us has to know.
func (c *child) remember() error {
	r, err := newRecord(c.order.name, c.proc.pid, c.socket, c.order.outlives)
	if err == nil {
		err = writeRecord(c.run.path, r)
	}
	if err != nil {
		return fmt.Errorf("remember the process: %w", err)
	}
	return nil
}

// start starts p unless that was cut short.
func (c *child) start(p program) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return context.Canceled
	}
	c.proc, err = start(p)
	return err
}

// cutShort ends a start that is under way.
func (c *child) cutShort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	if c.proc != nil {
		c.proc.kill()
	}
}

// kill ends the process, if there is one, and removes what belongs to it.
func (c *child) kill() {
	if c.proc != nil {
		c.proc.kill()
		<-c.proc.exited
		<-c.drained
	} else {
		c.out.close()
	}
	c.forget()
}

// forget removes what belongs to a process that ended.
func (c *child) forget() {
	if c.host != nil {
		_ = c.host.Close()
	}
	_ = os.RemoveAll(c.dir)
	if rec, ok := readRecord(c.run.path, c.order.name); ok && c.proc != nil && rec.PID == c.proc.pid {
		c.run.forget(rec)
	}
}

// words returns the last that it wrote.
func (c *child) words() []string {
	if !c.order.outlives {
		return c.out.last()
	}
	return append(tail(c.logPath(), lastWords), c.out.last()...)
}

// tail returns the last lines of a file, at most n and 64 KiB.
func tail(path string, n int) []string {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	const most = 64 << 10
	if info, err := f.Stat(); err == nil && info.Size() > most {
		_, _ = f.Seek(-most, io.SeekEnd)
	}
	text, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil || len(text) == 0 {
		return nil
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return lines[max(0, len(lines)-n):]
}

// inBrief puts the end of a process's last words into an error.
func inBrief(words []string) string {
	const most = 200 // bytes of a line
	var out []string
	for _, w := range words[max(0, len(words)-3):] {
		if len(w) > most {
			w = strings.ToValidUTF8(w[:most], "") + "…"
		}
		out = append(out, w)
	}
	return strings.Join(out, " | ")
}

// oneLine is an error of go-plugin's, which fills paragraphs.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// explain says why there was no handshake: who, what was printed, what to do.
func (c *child) explain(ctx context.Context, err error) error {
	var refusal *Refusal
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("start of %s cut short: %w", c.image.path, ctx.Err())
	case errors.As(err, &refusal), c.proc == nil, errors.Is(err, fs.ErrPermission):
		return err
	}
	said := ""
	if c.printed != "" {
		said += fmt.Sprintf("; standard output began with %q", c.printed)
	}
	if words := c.words(); len(words) > 0 {
		said += "; its last words: " + inBrief(words)
	}
	fields := strings.Split(c.printed, "|")
	switch shook := len(fields) >= 4; {
	case shook && fields[0] == "1" && fields[1] != fmt.Sprint(handshake.ProtocolVersion):
		return refuse(fmt.Sprintf("%s speaks version %s of the contract, and this agent version %d", c.image.path, fields[1], handshake.ProtocolVersion),
			"install the build of the plugin that goes with this version of Fairlead")
	case shook:
		return refuse(fmt.Sprintf("the handshake of %s cannot be used: %s%s", c.image.path, oneLine(err), said), "rebuild the plugin with the SDK")
	case c.printed != "":
		return refuse(fmt.Sprintf("%s wrote something else where its handshake was due%s", c.image.path, said),
			"a plugin writes nothing to standard output before the handshake; its log goes to standard error")
	case strings.Contains(err.Error(), "timeout"):
		return refuse(fmt.Sprintf("%s did not shake hands within %v%s", c.image.path, c.order.timeout, said),
			fmt.Sprintf("see what it waits for, or raise plugins.%s.%s", c.order.name, keyStartTimeout))
	}
	return refuse(fmt.Sprintf("%s ended before its handshake (%s)%s", c.image.path, c.proc.status, said), "run it by hand to see why")
}

// cleanup closes files in the end.
type cleanup []io.Closer

func (c *cleanup) close(f io.Closer) { *c = append(*c, f) }

func (c *cleanup) run() { closeAll(*c...) }

func closeAll[C io.Closer](files ...C) {
	for _, f := range files {
		_ = f.Close()
	}
}
