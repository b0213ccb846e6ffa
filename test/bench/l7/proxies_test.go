package l7

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/test/port"
)

// service is one that a proxy knows; all have the same backend.
type service struct{ name, host string }

// proxy is a program that can be started as one.
type proxy struct {
	name string
	// command writes what the program needs into dir.
	command func(dir string, at, backend netip.AddrPort, services []service) (*exec.Cmd, error)
}

// process is one that runs.
type process struct {
	name string
	at   netip.AddrPort
	pid  int
}

// theBackend is what all proxies lead to.
func theBackend(peer string) proxy {
	return proxy{"direct", func(_ string, at, _ netip.AddrPort, _ []service) (*exec.Cmd, error) {
		return exec.Command(peer, "backend", at.String()), nil
	}}
}

func fairlead(name, program string) proxy {
	return proxy{name, func(dir string, at, backend netip.AddrPort, services []service) (*exec.Cmd, error) {
		var text strings.Builder
		fmt.Fprintf(&text, "listen: %s\nadmin: off\nservices:\n", at)
		for _, s := range services {
			fmt.Fprintf(&text, "  - {name: %s, hosts: [%s], endpoints: [%q]}\n", s.name, s.host, backend)
		}
		path := filepath.Join(dir, "l7.yaml")
		return exec.Command(program, "serve", "--config", path), os.WriteFile(path, []byte(text.String()), 0o600)
	}}
}

func reverseProxy(peer string) proxy {
	return proxy{"ReverseProxy", func(_ string, at, backend netip.AddrPort, _ []service) (*exec.Cmd, error) {
		return exec.Command(peer, "proxy", at.String(), backend.String()), nil
	}}
}

// nginx and haproxy take so many clients at most.

func nginx(program string, clients int) proxy {
	return proxy{"nginx", func(dir string, at, backend netip.AddrPort, _ []service) (*exec.Cmd, error) {
		user := ""
		if os.Geteuid() == 0 {
			user = "user root;" // the worker needs dir
		}
		text := fmt.Sprintf(`daemon off; worker_processes 1; pid %[1]s/pid; %[2]s
error_log stderr error;
events { worker_connections %[3]d; }
http {
  access_log off;
  client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
  keepalive_requests 1000000; keepalive_timeout 3m; client_max_body_size 0;
  upstream backend { server %[4]s; keepalive 256; keepalive_requests 1000000; keepalive_timeout 3m; }
  server {
    listen %[5]s;
    location / {
      proxy_pass http://backend; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_request_buffering off; proxy_max_temp_file_size 0; proxy_buffers 16 16k; proxy_busy_buffers_size 64k;
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
      proxy_set_header X-Forwarded-Host $http_host;
      proxy_set_header X-Forwarded-Proto $scheme;
    }
  }
}
`, dir, user, 2*clients, backend, at)
		path := filepath.Join(dir, "nginx.conf")
		return exec.Command(program, "-e", "stderr", "-p", dir, "-c", path), os.WriteFile(path, []byte(text), 0o600)
	}}
}

func haproxy(program string, clients int) proxy {
	return proxy{"HAProxy", func(dir string, at, backend netip.AddrPort, _ []service) (*exec.Cmd, error) {
		text := fmt.Sprintf(`global
  nbthread 1
  maxconn %d
  maxpipes 200
defaults
  mode http
  timeout connect 3s
  timeout client 3m
  timeout server 1m
  http-reuse always
  option splice-auto
  option forwardfor
frontend clients
  bind %s
  http-request set-header X-Forwarded-Host %%[req.hdr(host)]
  http-request set-header X-Forwarded-Proto http
  default_backend instances
backend instances
  server one %s
`, clients, at, backend)
		path := filepath.Join(dir, "haproxy.cfg")
		return exec.Command(program, "-db", "-f", path), os.WriteFile(path, []byte(text), 0o600)
	}}
}

// start runs a program until the test ends, on one CPU, and waits until it
// answers for the last of the services.
func (b *bench) start(p proxy, cpu int, services []service) process {
	t := b.t
	t.Helper()
	var last string
	for range 3 { // someone else may take the port in between
		at := netip.MustParseAddrPort(port.Free(t))
		dir, err := os.MkdirTemp(b.dir, "")
		if err != nil {
			t.Fatal(err)
		}
		cmd, err := p.command(dir, at, b.backend.at, services)
		if err != nil {
			t.Fatal(err)
		}
		out := &lines{}
		cmd.Stdout, cmd.Stderr = out, out
		cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
		if err := pinned(cpu, cmd.Start); err != nil {
			t.Fatalf("%s: %v", p.name, err)
		}
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait() // how it ends is its own affair
			close(ended)
		}()
		stop := sync.OnceFunc(func() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			select {
			case <-ended:
			case <-time.After(patience):
				_ = cmd.Process.Kill()
				<-ended
				t.Errorf("%s did not end in time; it was killed\n%s", p.name, out)
			}
		})
		if b.serving(at, services[len(services)-1].host, ended) {
			t.Cleanup(stop)
			return process{p.name, at, cmd.Process.Pid}
		}
		stop()
		last = out.String()
	}
	t.Fatalf("%s does not answer:\n%s", p.name, last)
	return process{}
}

// serving waits until a request is answered as it should be: a proxy may take
// connections before it knows its backends.
func (b *bench) serving(at netip.AddrPort, host string, ended <-chan struct{}) bool {
	request := get("", "/", 1<<10, 1, host).requests[0]
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if c, err := net.DialTimeout("tcp", at.String(), time.Second); err == nil {
			_ = c.SetDeadline(deadline)
			err := exchange(c, bufio.NewReader(c), request, 1<<10)
			c.Close()
			if err == nil {
				b.sent++
				return true
			}
		}
		select {
		case <-ended:
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
	return false
}

// pinned calls start on a thread that may run on one CPU only; a process that
// it starts inherits that. -1 is any CPU.
func pinned(cpu int, start func() error) error {
	if cpu < 0 {
		return start()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, only unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	only.Set(cpu)
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		return err
	}
	defer func() { _ = unix.SchedSetaffinity(0, &before) }() // it was so before
	return start()
}

// built compiles a package of the module in a folder.
func (b *bench) built(folder, pkg string) string {
	b.t.Helper()
	path := filepath.Join(b.dir, filepath.Base(pkg))
	cmd := exec.Command("go", "build", "-C", folder, "-trimpath", "-o", path, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as make build
	if out, err := cmd.CombinedOutput(); err != nil {
		b.t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	return path
}

// lines keeps the end of what a process says.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.buf.Len() > 64<<10 {
		l.buf.Reset()
	}
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
