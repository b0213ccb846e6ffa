package conf

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/l7/internal/settings"
)

func load(text string, environ []string, args ...string) (*Config, error) {
	if text != "" {
		args = append([]string{"--config", "/etc/fairlead/l7.yaml"}, args...)
	}
	return Load(Input{Args: args, Environ: environ, ReadFile: func(name string) ([]byte, error) {
		if name != "/etc/fairlead/l7.yaml" {
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		return []byte(text), nil
	}})
}

const whole = `# all that there is
listen: ["127.0.0.1:8088", "[::1]:8088"]
admin: off
zone: example.test
trusted_proxies: [10.0.0.0/8, 192.0.2.1]
h2c: true
grace: 3s
retries: 0
log_level: debug
services:
  - name: web
    hosts: [shop.example, "*.shop.example"]
    routes:
      - {host: api.example, path_prefix: /v1, methods: [GET], headers: {X-Tenant: blue}}
    balance: round-robin
    drain_time: 5s
    endpoints:
      - 127.0.0.1:9001
      - {address: "[::1]:9002", weight: 2, name: web-2, zone: rack-1}
      - localhost:9003
  - name: team/api
    endpoints: []
`

func TestTheWholeFile(t *testing.T) {
	cfg, err := load(whole, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := cfg.Settings
	if !slices.Equal(s.Listen, []string{"127.0.0.1:8088", "[::1]:8088"}) || s.Admin != settings.Off || s.Zone != "example.test" || !s.H2C || s.Grace != 3*time.Second || s.Retry.Most != 0 {
		t.Errorf("got settings %+v", s)
	}
	if want := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.1/32")}; !slices.Equal(s.TrustedProxies, want) {
		t.Errorf("got trusted proxies %v, want %v", s.TrustedProxies, want)
	}
	if cfg.LogLevel != slog.LevelDebug || len(cfg.Services) != 2 {
		t.Fatalf("got level %v and %d services", cfg.LogLevel, len(cfg.Services))
	}
	web := cfg.Services[0]
	if web.Key != (dataplane.Key{Namespace: "default", Name: "web"}) || web.Balance != dataplane.BalanceRoundRobin || web.DrainTime != 5*time.Second || web.Endpoints.Len() != 3 {
		t.Errorf("got %+v", web)
	}
	r := web.Routes[0]
	if r.Host != "api.example" || r.PathPrefix != "/v1" || !slices.Equal(r.Methods, []string{"GET"}) || r.Headers["X-Tenant"] != "blue" {
		t.Errorf("got route %+v", r)
	}
	if got := cfg.Place(web.Key); got != "l7.yaml:11" {
		t.Errorf("web is at %s", got)
	}
	var heavy dataplane.Endpoint
	for e := range web.Endpoints.All() {
		if e.Name == "web-2" {
			heavy = e
		}
	}
	if heavy.Weight != 2 || heavy.Zone != "rack-1" || heavy.Addr != netip.MustParseAddrPort("[::1]:9002") {
		t.Errorf("got endpoint %+v", heavy)
	}
	if cfg.Services[1].Key.String() != "team/api" {
		t.Errorf("got %v", cfg.Services[1].Key)
	}
	again, err := load(strings.Replace(whole, "127.0.0.1:9001", "127.0.0.1:9001\n      - 127.0.0.1:9009", 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := again.Services[0].Endpoints.Get(heavy.ID); !ok {
		t.Error("an endpoint has another id once there is a further one")
	}
}

// Flags count more than variables, these more than the file, and the file more
// than defaults.
func TestPrecedence(t *testing.T) {
	cfg, err := load("listen: 127.0.0.1:1\ngrace: 1s\nzone: a.test\nservices: []\n",
		[]string{"FAIRLEAD_L7_LISTEN=127.0.0.1:2", "FAIRLEAD_L7_GRACE=2s", "HOME=/"}, "--listen", "127.0.0.1:3")
	if err != nil {
		t.Fatal(err)
	}
	s := cfg.Settings
	if s.Listen[0] != "127.0.0.1:3" || s.Grace != 2*time.Second || s.Zone != "a.test" || s.Admin != DefaultAdmin {
		t.Errorf("got %v %v %v %v", s.Listen, s.Grace, s.Zone, s.Admin)
	}
}

func TestVariablesAlone(t *testing.T) {
	cfg, err := load("", []string{
		`FAIRLEAD_L7_SERVICES=[{name: web, endpoints: ["127.0.0.1:9001"]}]`, "FAIRLEAD_L7_LISTEN=127.0.0.1:0,[::1]:0", "FAIRLEAD_L7_H2C=true",
		"FAIRLEAD_L7_RETRIES=1", "FAIRLEAD_L7_TRUSTED_PROXIES=10.0.0.0/8, ::1",
	})
	if err != nil {
		t.Fatal(err)
	}
	if s := cfg.Settings; len(s.Listen) != 2 || !s.H2C || s.Retry.Most != 1 || len(s.TrustedProxies) != 2 || len(cfg.Services) != 1 {
		t.Errorf("got %+v", cfg)
	}
	cfg, err = load("", []string{"FAIRLEAD_L7_FOLLOW=/run/fairlead/api.sock"})
	if err != nil || cfg.Follow != "unix:/run/fairlead/api.sock" {
		t.Errorf("got %+v, %v", cfg, err)
	}
	cfg, err = Load(Input{Environ: []string{"FAIRLEAD_L7_CONFIG=/x/l7.yaml"}, ReadFile: func(string) ([]byte, error) { return []byte("provider_socket: unix:/run/l7/s"), nil }})
	if err != nil || cfg.Socket != "/run/l7/s" || cfg.File != "/x/l7.yaml" {
		t.Errorf("got %+v, %v", cfg, err)
	}
}

func TestFlags(t *testing.T) {
	cfg, err := load("", nil, "--services", "[{name: a}]", "--h2c", "--access-log=stdout", "--idle_per_endpoint=7", "-log-level", "warn")
	if err != nil {
		t.Fatal(err)
	}
	if s := cfg.Settings; !s.H2C || s.AccessLog != "stdout" || s.Idle.PerEndpoint != 7 || cfg.LogLevel != slog.LevelWarn {
		t.Errorf("got %+v", cfg)
	}
	for _, args := range [][]string{{"--listn", "x"}, {"serve"}, {"--listen"}} {
		if _, err := load("", nil, args...); !errors.Is(err, ErrUsage) {
			t.Errorf("%v: got %v, want %v", args, err, ErrUsage)
		}
	}
	if _, err := load("", nil, "--listn", "x"); !strings.Contains(fmt.Sprint(err), "--listen") {
		t.Errorf("got %v", err)
	}
	for _, help := range []string{"-h", "--help"} {
		if _, err := load("", nil, help); !errors.Is(err, ErrHelp) {
			t.Errorf("%s: got %v", help, err)
		}
	}
}

// Every mistake is named with its place, its value and what to do.
func TestMistakes(t *testing.T) {
	const ok = "services: []\n"
	tests := []struct {
		name, text string
		environ    []string
		want       []string // parts of the error
	}{
		{"unknown key", ok + "listem: 127.0.0.1:1\n", nil, []string{"l7.yaml:2:", `"listem"`, "did you mean listen?"}},
		{"unknown key of a service", "services:\n  - name: web\n    endpoint: []\n", nil, []string{"l7.yaml:3:", `"endpoint"`, "did you mean endpoints?"}},
		{"unknown key of a route", "services:\n- name: web\n  routes: [{path: /}]\n", nil, []string{"l7.yaml:3:", `"path"`, "path_prefix"}},
		{"key twice", ok + "zone: a\nzone: b\n", nil, []string{"l7.yaml:3:", "zone is written twice", "line 2"}},
		{"no YAML", "services: [\n", nil, []string{"l7.yaml:", "no valid YAML", "line"}},
		{"second document", ok + "---\nzone: b\n", nil, []string{"second document"}},
		{"no mapping", "- a\n", nil, []string{"l7.yaml:1:", "KEY: VALUE"}},
		{"alias", "zone: &z a\nlisten: *z\n", nil, []string{"l7.yaml:2:", "alias"}},
		{"nested setting", ok + "listen: {a: b}\n", nil, []string{"l7.yaml:2:", "listen"}},
		{"listen without port", ok + "listen: 127.0.0.1\n", nil, []string{"l7.yaml:2:", `"127.0.0.1"`, "IP:PORT"}},
		{"listen at a name", ok + "listen: example.com:80\n", nil, []string{`"example.com:80"`}},
		{"listen twice", ok + "listen: [\"127.0.0.1:1\", \"127.0.0.1:1\"]\n", nil, []string{"twice"}},
		{"admin at listen", ok + "listen: 127.0.0.1:1\nadmin: 127.0.0.1:1\n", nil, []string{"l7.yaml:3:", "another port"}},
		{"duration without unit", ok + "grace: 10\n", nil, []string{"l7.yaml:2:", "grace", "10s"}},
		{"duration too long", ok + "grace: 1000h\n", nil, []string{"grace is 1000h"}},
		{"text for a number", ok + "retries: many\n", nil, []string{"l7.yaml:2:", "retries", "number"}},
		{"number out of range", ok + "retries: 99\n", nil, []string{"retries is 99", "0 to 5"}},
		{"text for a bool", ok + "h2c: \"true\"\n", nil, []string{"h2c", "true or false"}},
		{"trusted name", ok + "trusted_proxies: [lb]\n", nil, []string{`"lb"`, "network"}},
		{"zone with capitals", ok + "zone: Mesh\n", nil, []string{`"Mesh"`, "lower case"}},
		{"access log", ok + "access_log: syslog\n", nil, []string{`"syslog"`, "stderr"}},
		{"log level", ok + "log_level: loud\n", nil, []string{"l7.yaml:2:", `"loud"`, "debug"}},
		{"times that contradict", ok + "eject_first: 1m\neject_most: 1s\n", nil, []string{"l7.yaml:2:", "eject_first", "lower it"}},
		{"try above first byte", ok + "first_byte_timeout: 1s\ntry_timeout: 2s\n", nil, []string{"l7.yaml:3:", "try_timeout"}},
		{"service without name", "services:\n- endpoints: []\n", nil, []string{"l7.yaml:2:", "services[0]", "no name"}},
		{"bad name", "services: [{name: a/b/c}]\n", nil, []string{"l7.yaml:1:", `"a/b/c"`, "NAMESPACE/NAME"}},
		{"service twice", "services:\n- name: web\n- name: default/web\n", nil, []string{"l7.yaml:3:", "default/web", "l7.yaml:2"}},
		{"endpoint by name", "services:\n- name: web\n  endpoints:\n  - web:80\n", nil, []string{"l7.yaml:4:", `"web:80"`, "names are not resolved"}},
		{"endpoint without port", "services: [{name: web, endpoints: [127.0.0.1]}]\n", nil, []string{`"127.0.0.1"`}},
		{"endpoint at port 0", "services: [{name: web, endpoints: [\"127.0.0.1:0\"]}]\n", nil, []string{"l7.yaml:1:", "default/web"}},
		{"endpoint twice", "services: [{name: web, endpoints: [\"127.0.0.1:1\", \"localhost:1\"]}]\n", nil, []string{"127.0.0.1:1", "twice"}},
		{"weight", "services: [{name: web, endpoints: [{address: \"127.0.0.1:1\", weight: -1}]}]\n", nil, []string{"weight", `"-1"`}},
		{"balance", "services:\n- name: web\n  balance: best\n", nil, []string{"l7.yaml:3:", `"best"`, "round-robin"}},
		{"drain time", "services: [{name: web, drain_time: long}]\n", nil, []string{"drain_time", `"long"`}},
		{"route without slash", "services:\n- name: web\n  routes: [{path_prefix: api}]\n", nil, []string{"l7.yaml:2:", `"api"`, "slash"}},
		{"route with a bad method", "services:\n- name: web\n  routes: [{path_prefix: /, methods: [get it]}]\n", nil, []string{`"get it"`}},
		{"host with a port", "services:\n- name: web\n  hosts: [\"a.example:80\"]\n", nil, []string{"l7.yaml:2:", `"a.example:80"`, "port"}},
		{"one host of two services", "services:\n- name: a\n  hosts: [Shop.Example.]\n- name: b\n  hosts: [shop.example]\n", nil, []string{"l7.yaml:4:", "shop.example/", "default/a", "l7.yaml:2"}},
		{"one host twice", "services:\n- name: a\n  hosts: [shop.example, SHOP.example]\n", nil, []string{"l7.yaml:2:", `"SHOP.example"`, "the same"}},
		{"mesh name of another", "services:\n- name: a\n- name: b\n  hosts: [a.default]\n", nil, []string{"default/a", "a.default"}},
		{"nothing to serve", "zone: a\n", nil, []string{"services", "follow", "provider_socket"}},
		{"two sources", ok + "follow: 127.0.0.1:1\n", nil, []string{"services and follow exclude each other"}},
		{"follow another host", "follow: 198.51.100.1:7402\n", nil, []string{"l7.yaml:1:", "198.51.100.1:7402", "on this host"}},
		{"follow no port", "follow: localhost\n", nil, []string{"l7.yaml:1:", `"localhost"`, "HOST:PORT"}},
		{"follow no number", "follow: 127.0.0.1:abc\n", nil, []string{"l7.yaml:1:", `"127.0.0.1:abc"`, "HOST:PORT"}},
		{"follow port 0", "follow: 127.0.0.1:0\n", nil, []string{"l7.yaml:1:", "HOST:PORT"}},
		{"follow a relative path", "follow: unix:api.sock\n", nil, []string{"l7.yaml:1:", "absolute"}},
		{"relative socket", "provider_socket: run/l7.sock\n", nil, []string{"l7.yaml:1:", "absolute"}},
		{"unknown variable", ok, []string{"FAIRLEAD_L7_LISTN=x"}, []string{"FAIRLEAD_L7_LISTN", "FAIRLEAD_L7_LISTEN?"}},
		{"bad variable", ok, []string{"FAIRLEAD_L7_GRACE=x"}, []string{"FAIRLEAD_L7_GRACE", `"x"`}},
		{"bad services in a variable", "", []string{"FAIRLEAD_L7_SERVICES=[{name: a, endpoints: [x]}]"}, []string{"FAIRLEAD_L7_SERVICES:", `"x"`}},
		{"no list in a variable", "", []string{"FAIRLEAD_L7_SERVICES=web"}, []string{"FAIRLEAD_L7_SERVICES:", "want a list"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(tt.text, tt.environ)
			if err == nil {
				t.Fatal("it was accepted")
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error lacks %q: %v", part, err)
				}
			}
			if n := strings.Count(err.Error(), "\n"); n > 0 {
				t.Errorf("one mistake makes %d lines: %v", n+1, err)
			}
		})
	}
}

func TestAllMistakesAtOnce(t *testing.T) {
	_, err := load("services: []\nlisten: x\nfoo: 1\ngrace: y\n", []string{"FAIRLEAD_L7_NO=1"})
	for _, part := range []string{"foo", "grace", "FAIRLEAD_L7_NO"} {
		if !strings.Contains(fmt.Sprint(err), part) {
			t.Errorf("%q is missing: %v", part, err)
		}
	}
}

func TestMissingFile(t *testing.T) {
	_, err := Load(Input{Args: []string{"--config", "/none"}, ReadFile: func(name string) ([]byte, error) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}})
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "--config") {
		t.Errorf("got %v", err)
	}
	if _, err := load("# nothing\n", nil); err == nil || !strings.Contains(err.Error(), "nothing to serve") {
		t.Errorf("got %v", err)
	}
}

func FuzzFile(f *testing.F) {
	f.Add(whole)
	f.Add("services: [{name: a, endpoints: [{address: \"[::1]:80\"}]}]")
	f.Fuzz(func(t *testing.T, text string) {
		cfg, err := load(text, nil, "--log-level=info")
		if (cfg == nil) == (err == nil) {
			t.Errorf("got %v and %v", cfg, err)
		}
		if cfg == nil {
			return
		}
		for _, svc := range cfg.Services {
			if p := svc.Check(); p != nil {
				t.Errorf("%v: %s", svc.Key, p.Message)
			}
		}
	})
}
