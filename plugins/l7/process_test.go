package l7

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/netns"
	"github.com/fairlead/fairlead/test/port"
	"github.com/fairlead/fairlead/test/runnable"
)

// patience bounds each wait; it is long as the machine may be busy.
const patience = await.Patience

// builds makes each program once for all tests.
type builds struct {
	dir  string
	made map[string]func() error
}

var programs = newBuilds()

func newBuilds() *builds {
	b := &builds{made: map[string]func() error{}}
	for _, name := range []string{"fairlead", "fairlead-dataplane-l7"} {
		b.made[name] = sync.OnceValue(func() error {
			path := filepath.Join(b.dir, name)
			if agent := os.Getenv("FAIRLEAD_BIN"); agent != "" && name == "fairlead" {
				return runnable.Copy(agent, path) // plugins are looked for beside it
			}
			args := []string{"build", "-o", path}
			if name != "fairlead" {
				args = append(args, buildFlags()...)
			}
			out, err := exec.Command("go", append(args, "github.com/fairlead/fairlead/cmd/"+name)...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("go build %s: %w\n%s", name, err, out)
			}
			return nil
		})
	}
	return b
}

func (b *builds) path(t *testing.T, name string) string {
	t.Helper()
	if err := b.made[name](); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(b.dir, name)
}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "l7-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	programs.dir = dir
	code := m.Run()
	if err := errors.Join(os.RemoveAll(dir), netns.RootIsFree()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// process is a program that runs. It is killed with the test.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{}

	mu    sync.Mutex
	lines []string // of standard output and standard error
}

// run starts a program in an environment of its own.
func run(t *testing.T, path string, environ []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(path, args...), done: make(chan struct{})}
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, environ...)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout, p.cmd.Stderr = writer, writer
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = writer.Close()
	go func() {
		for s := bufio.NewScanner(reader); s.Scan(); {
			p.mu.Lock()
			p.lines = append(p.lines, s.Text())
			p.mu.Unlock()
		}
		_ = reader.Close()
	}()
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.signal(syscall.SIGKILL)
		<-p.done
		if t.Failed() {
			t.Logf("%s %v wrote\n%s", filepath.Base(path), args, p.output())
		}
	})
	return p
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}

func (p *process) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }

// code waits for the end and returns the exit code.
func (p *process) code() int {
	p.t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		p.signal(syscall.SIGQUIT) // it writes where each goroutine is
		<-p.done
		p.t.Fatalf("%v has not ended in %v; it wrote\n%s", p.cmd.Args, patience, p.output())
		return -1
	}
}

// says waits for a line that matches, and returns its first group.
func (p *process) says(pattern string) string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	var found string
	await.For(p.t, fmt.Sprintf("%v says %s", p.cmd.Args, pattern), func() bool {
		m := re.FindStringSubmatch(p.output())
		if m != nil {
			found = m[len(m)-1]
		}
		return m != nil
	})
	return found
}

// count is how many lines match.
func (p *process) count(pattern string) int {
	return len(regexp.MustCompile(pattern).FindAllString(p.output(), -1))
}

// proxyProcess is a proxy that runs by itself, and where it listens.
type proxyProcess struct {
	*process
	listen, admin string
}

func serve(t *testing.T, environ []string, args ...string) *proxyProcess {
	t.Helper()
	p := run(t, programs.path(t, "fairlead-dataplane-l7"), environ, append([]string{"serve"}, args...)...)
	p.says(`msg=serving `)
	return &proxyProcess{process: p, listen: p.says(`msg=serving .*listen=([0-9.]+:\d+)`), admin: p.says(`admin=([0-9.]+:\d+)`)}
}

// backend is a server that says its name.
func backend(t *testing.T, name string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, name)
	}))
	t.Cleanup(s.Close)
	return s
}

func address(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }

// clientOf returns a client that sends everything to one address.
func clientOf(t *testing.T, listen string) *http.Client {
	t.Helper()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", listen)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: patience}
}

// ask makes a GET and returns status and body.
func ask(c *http.Client, url string) (int, string, error) {
	r, err := c.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	return r.StatusCode, string(body), err
}

// load makes requests from some clients until it is stopped, and returns how
// many were answered; each other outcome is an error of the test.
func load(t *testing.T, clients int, listen, url string, good func(body string) bool) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var all sync.WaitGroup
	total := 0
	for range clients {
		c := clientOf(t, listen)
		all.Go(func() {
			for ctx.Err() == nil {
				code, body, err := ask(c, url)
				if err == nil && (code != http.StatusOK || !good(body)) {
					err = fmt.Errorf("status %d, %q", code, body)
				}
				mu.Lock()
				total++
				mu.Unlock()
				if err != nil {
					t.Errorf("under load: %v", err)
					return
				}
			}
		})
	}
	return func() int {
		cancel()
		all.Wait()
		return total
	}
}

// freePort returns a port of loopback that nobody has just now.
func freePort(t *testing.T) string {
	t.Helper()
	_, number, err := net.SplitHostPort(port.Free(t))
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// write puts text into a file, whole at once.
func write(t *testing.T, path, text string) {
	t.Helper()
	err := errors.Join(os.WriteFile(path+".new", []byte(text), 0o600), os.Rename(path+".new", path))
	if err != nil {
		t.Fatal(err)
	}
}
