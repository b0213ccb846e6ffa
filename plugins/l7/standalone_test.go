package l7

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/scale"
	"github.com/fairlead/fairlead/test/short"
)

// anyPort are settings for tests: no fixed port.
const anyPort = "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\n"

func services(name string, endpoints ...string) string {
	return fmt.Sprintf("services: [{name: %s, hosts: [shop.example], endpoints: [\"%s\"]}]\n", name, strings.Join(endpoints, `", "`))
}

func TestServeAFile(t *testing.T) {
	a, b := backend(t, "a"), backend(t, "b")
	file := filepath.Join(t.TempDir(), "l7.yaml")
	write(t, file, anyPort+fmt.Sprintf("services: [{name: web, hosts: [shop.example], endpoints: [%q, %q]}, {name: none}]\n", address(a), address(b)))
	p := serve(t, nil, "--config", file)
	c := clientOf(t, p.listen)
	seen := map[string]int{}
	for range 40 {
		for _, host := range []string{"web", "web.default", "WEB.default.mesh.internal.", "shop.example:80"} {
			code, body, err := ask(c, "http://"+host+"/")
			if err != nil || code != http.StatusOK {
				t.Fatalf("%s: got %d %q, %v", host, code, body, err)
			}
			seen[body]++
		}
	}
	if seen["a"] == 0 || seen["b"] == 0 || len(seen) != 2 {
		t.Errorf("answers came from %v, want both backends", seen)
	}
	for host, want := range map[string]int{"nobody": http.StatusNotFound, "none": http.StatusServiceUnavailable} {
		if code, _, err := ask(c, "http://"+host+"/"); err != nil || code != want {
			t.Errorf("%s: got %d, %v, want %d", host, code, err, want)
		}
	}
	admin := clientOf(t, p.admin)
	for path, want := range map[string]string{"/livez": "ok", "/readyz": "ok", "/metrics": `fairlead_l7_requests_total{code="2xx",service="default/web"} 160`} {
		if code, body, err := ask(admin, "http://admin"+path); err != nil || code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: got %d, %v, without %q", path, code, err, want)
		}
	}
	p.signal(syscall.SIGTERM)
	if code := p.code(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
}

func TestServeVariablesOnly(t *testing.T) {
	a := backend(t, "a")
	p := serve(t, []string{
		"FAIRLEAD_L7_LISTEN=127.0.0.1:0", "FAIRLEAD_L7_ADMIN=127.0.0.1:0", "FAIRLEAD_L7_ACCESS_LOG=stdout",
		fmt.Sprintf("FAIRLEAD_L7_SERVICES=[{name: web, endpoints: [%q]}]", address(a)),
	})
	if code, body, err := ask(clientOf(t, p.listen), "http://web/x?y=1"); err != nil || code != http.StatusOK || body != "a" {
		t.Errorf("got %d %q, %v", code, body, err)
	}
	p.says(`(?m)^\{.*"/x`)
}

// A hundred reloads under load, with other endpoints, other listeners, other
// settings and broken files: no request is lost.
func TestReloadUnderLoad(t *testing.T) {
	a, b := backend(t, "a"), backend(t, "b")
	file := filepath.Join(t.TempDir(), "l7.yaml")
	write(t, file, anyPort+services("web", address(a)))
	p := serve(t, nil, "--config", file)
	stop := load(t, 4, p.listen, "http://web/", func(body string) bool { return body == "a" || body == "b" })
	variants := []string{
		anyPort + services("web", address(a), address(b)),
		anyPort + services("web", address(b)) + "max_header_bytes: 32768\n",
		strings.Replace(anyPort, "listen: 127.0.0.1:0", `listen: ["127.0.0.1:0", "127.0.0.1:0"]`, 1) + services("web", address(a)),
		anyPort + services("web", address(a)) + "zone: other.test\nretry_budget: 50\naccess_log: stdout\n",
	}
	const reloaded = `msg="the configuration was reloaded"`
	good, bad := 0, 0
	for i := range scale.N(100) {
		if i%5 == 4 {
			write(t, file, "listem: x\n"+services("web", address(a)))
			bad++
		} else {
			write(t, file, variants[i%len(variants)])
			good++
		}
		p.signal(syscall.SIGHUP)
		await.For(t, "the reload is done", func() bool {
			return p.count(reloaded) == good && p.count(`msg="the new configuration is not in force`) == bad
		})
	}
	if bad > 0 {
		p.says(`not in force.*l7\.yaml:1:.*listem.*did you mean listen`)
	}
	write(t, file, anyPort+services("web", address(b)))
	p.signal(syscall.SIGHUP)
	c := clientOf(t, p.listen)
	await.For(t, "only the new endpoint answers", func() bool {
		_, body, err := ask(c, "http://web/")
		return err == nil && body == "b" && p.count(reloaded) == good+1
	})
	if n := stop(); n == 0 {
		t.Error("there was no load")
	} else {
		t.Logf("%d requests over %d reloads, %d of them refused", n, good+bad+1, bad)
	}
	_, body, err := ask(clientOf(t, p.admin), "http://admin/metrics")
	for result, n := range map[string]int{"applied": good + 1, "failed": bad} {
		if want := fmt.Sprintf(`fairlead_l7_reloads_total{result=%q} %d`, result, n); err != nil || !strings.Contains(body, want) {
			t.Errorf("metrics without %s (%v)", want, err)
		}
	}
}

func TestReloadOfATakenPort(t *testing.T) {
	a := backend(t, "a")
	file := filepath.Join(t.TempDir(), "l7.yaml")
	write(t, file, anyPort+services("web", address(a)))
	p := serve(t, nil, "--config", file)
	write(t, file, strings.Replace(anyPort, "127.0.0.1:0", address(a), 1)+services("gone", address(a)))
	p.signal(syscall.SIGHUP)
	p.says(`not in force.*listen ` + address(a) + `: the port is in use`)
	if code, body, err := ask(clientOf(t, p.listen), "http://web/"); err != nil || code != http.StatusOK || body != "a" {
		t.Errorf("the old configuration is not in force: got %d %q, %v", code, body, err)
	}
}

func TestPortInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for key, flags := range map[string][]string{
		"listen": {"--listen", taken.Addr().String(), "--admin", "off"},
		"admin":  {"--listen", "127.0.0.1:0", "--admin", taken.Addr().String()},
	} {
		p := run(t, programs.path(t, "fairlead-dataplane-l7"), nil, append([]string{"serve", "--services", "[]"}, flags...)...)
		if code := p.code(); code != 1 {
			t.Errorf("%s: exit code %d, want 1", key, code)
		}
		await.For(t, "the reason is told", func() bool { return strings.Contains(p.output(), "in use") })
		if out := p.output(); !strings.Contains(out, key+" "+taken.Addr().String()) || p.count(`(?m)in use`) != 1 {
			t.Errorf("%s: got %q, want one line that names it", key, out)
		}
	}
}

// The end: not ready, connections are asked to go, what is under way ends, and a
// second signal does not wait for that.
func TestTerm(t *testing.T) {
	entered, release := make(chan struct{}, 4), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			entered <- struct{}{}
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		fmt.Fprint(w, "slow")
	}))
	defer slow.Close()
	for _, second := range []bool{false, true} {
		t.Run(fmt.Sprintf("second=%v", second), func(t *testing.T) {
			p := serve(t, nil, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--announce-time", "5s", "--grace", "1m", "--log-level", "debug",
				"--services", fmt.Sprintf("[{name: web, endpoints: [%q]}]", address(slow)))
			answer := make(chan error, 1)
			go func() {
				code, body, err := ask(clientOf(t, p.listen), "http://web/slow")
				if err == nil && (code != http.StatusOK || body != "slow") {
					err = fmt.Errorf("status %d, %q", code, body)
				}
				answer <- err
			}()
			<-entered
			p.signal(syscall.SIGTERM)
			admin := clientOf(t, p.admin)
			await.For(t, "it is not ready", func() bool {
				code, _, err := ask(admin, "http://admin/readyz")
				return err == nil && code == http.StatusServiceUnavailable
			})
			r, err := clientOf(t, p.listen).Get("http://web/")
			if err != nil {
				t.Fatal(err)
			}
			_ = r.Body.Close()
			if !r.Close {
				t.Error("an answer does not ask its client to go")
			}
			if second {
				began := time.Now()
				p.signal(syscall.SIGTERM)
				if err := <-answer; err == nil {
					t.Error("the request came to its end")
				}
				if code := p.code(); code != 0 || time.Since(began) > patience/2 {
					t.Errorf("exit code %d after %v", code, time.Since(began))
				}
				return
			}
			await.For(t, "it takes no more connections", func() bool {
				c, err := net.Dial("tcp", p.listen)
				if err == nil {
					_ = c.Close()
				}
				return err != nil
			})
			select {
			case <-p.done:
				t.Error("it ended before the request did")
			default:
			}
			close(release)
			if err := <-answer; err != nil {
				t.Errorf("a request under way: %v", err)
			}
			if code := p.code(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			release = make(chan struct{})
		})
	}
}

func TestCommands(t *testing.T) {
	bin := programs.path(t, "fairlead-dataplane-l7")
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml")
	write(t, good, "services: [{name: web}]\n")
	write(t, bad, "services: [{name: a, hosts: [x.example]}, {name: b, hosts: [X.example]}]\n")
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"validate", "--config", good}, 0, "good.yaml is valid: 1 services"},
		{[]string{"validate", "--config", bad}, 1, "x.example"},
		{[]string{"validate", "--config", filepath.Join(dir, "none.yaml")}, 1, "none.yaml"},
		{[]string{"validate"}, 1, "nothing to serve"},
		{[]string{"serve", "--config", bad}, 1, "x.example"},
		{[]string{"serve", "--confg", bad}, 2, "--config"},
		{[]string{"serve", "--help"}, 0, "--try-timeout"},
		{[]string{"help"}, 0, "FAIRLEAD_L7_TRY_TIMEOUT"},
		{[]string{"sevre"}, 2, `"sevre"`},
		{[]string{"version"}, 0, ""},
		{[]string{"--plugin-info"}, 0, `"l7"`},
		{nil, 2, "agent"},
	} {
		p := run(t, bin, nil, tt.args...)
		if code := p.code(); code != tt.code {
			t.Errorf("%v: exit code %d, want %d", tt.args, code, tt.code)
		}
		await.For(t, fmt.Sprintf("%v says %q", tt.args, tt.want), func() bool { return strings.Contains(p.output(), tt.want) })
	}
}

// TestNotify plays systemd.
func TestNotify(t *testing.T) {
	path := filepath.Join(short.Dir(t), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	next := func(want string) {
		t.Helper()
		if err := socket.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 1024)
		n, err := socket.Read(b)
		if err != nil || !strings.HasPrefix(string(b[:n]), want) {
			t.Fatalf("got %q, %v, want %s", b[:n], err, want)
		}
	}
	p := serve(t, []string{"NOTIFY_SOCKET=" + path}, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--services", "[]")
	next("READY=1")
	p.signal(syscall.SIGHUP)
	next("RELOADING=1\nMONOTONIC_USEC=")
	next("READY=1")
	p.signal(syscall.SIGTERM)
	next("STOPPING=1")
	if code := p.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestExample validates the file that is shipped.
func TestExample(t *testing.T) {
	if _, err := os.Stat("../../docs/l7.example.yaml"); err != nil {
		t.Fatal(err)
	}
	p := run(t, programs.path(t, "fairlead-dataplane-l7"), nil, "validate", "--config", "../../docs/l7.example.yaml")
	if code := p.code(); code != 0 {
		t.Errorf("exit code %d: %s", code, p.output())
	}
}
