package config

import (
	"fmt"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestParseServices(t *testing.T) {
	one := "name: web\nport: 80\ninstances:\n- {id: a, address: '127.0.0.1:1', checks: [{tcp: true, interval: 500ms}]}\n"
	list := "services:\n- {name: web, port: 80, instances: [{id: a, address: '127.0.0.1:1', checks: [{tcp: true, interval: 500ms}]}]}\n- {name: db, port: 1}\n"
	for name, tc := range map[string]struct {
		text  string
		names []string
	}{
		"one":       {one, []string{"web"}},
		"list":      {list, []string{"web", "db"}},
		"empty":     {"", nil},
		"comments":  {"# later\n", nil},
		"null list": {"services: []\n", nil},
		"json":      {`{"name": "web", "port": 80}`, []string{"web"}},
	} {
		got, _, err := ParseServices("web.yaml", []byte(tc.text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var names []string
		for _, s := range got {
			names = append(names, s.Name)
		}
		if !reflect.DeepEqual(names, tc.names) {
			t.Errorf("%s: services %q, want %q", name, names, tc.names)
		}
		again, _, err := ParseServices("again", ServicesJSON(got))
		if err != nil || len(got) != 0 && !reflect.DeepEqual(again, got) {
			t.Errorf("%s: written and read again: %v\ngot  %+v\nwant %+v", name, err, again, got)
		}
	}
	a, _, _ := ParseServices("x", []byte(one))
	b, origins, _ := ParseServices("x", []byte(list))
	if !reflect.DeepEqual(a[0], b[0]) {
		t.Errorf("one service alone is %+v, in a list %+v", a[0], b[0])
	}
	if o := origins.Of("services[1]").String(); o != "x:3" {
		t.Errorf("the second is written at %s, want x:3", o)
	}
}

func TestParseServicesSaysWhere(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"half written": {"name: web\nport: 8", ""},
		"cut in a key": {"name: web\npor", "web.yaml:2: not valid YAML"},
		"no port":      {"name: web\n", "web.yaml: port: is 0 or missing"},
		"no name":      {"port: 80\n", `web.yaml: name: is ""`},
		"bad address":  {"name: web\nport: 80\ninstances:\n- id: a\n  address: web\n", `web.yaml:5:12: instances[0].address: is "web"; expected ip:port`},
		"in a list":    {"services:\n- name: web\n  port: 0\n", "web.yaml:3:9: services[0].port: is 0 or missing"},
		"twice":        {"services:\n- {name: web, port: 1}\n- {name: web, port: 1}\n", "web.yaml:3:10: services[1].name: is default/web, like services[0]"},
		"both forms":   {"name: web\nservices: []\n", "web.yaml:1:1: name: stands beside services"},
		"agent's keys": {"gossip: {bind: x}\n", "web.yaml:1:1: gossip: unknown key"},
		"a list":       {"- {name: web, port: 1}\n", "web.yaml:1:1: is a list; expected keys"},
	} {
		_, _, err := ParseServices("web.yaml", []byte(tc.text))
		switch {
		case tc.want == "":
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case err == nil:
			t.Errorf("%s: was taken", name)
		case !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n"):
			t.Errorf("%s: %q, want one finding with %q", name, err, tc.want)
		}
	}
}

func TestServicesDirIsBesideTheFile(t *testing.T) {
	cfg, _, _ := mustLoad(t, sources{file: ""})
	if want := "/etc/fairlead/services.d"; cfg.ServicesPath() != want {
		t.Errorf("services_dir %q, want %q", cfg.ServicesPath(), want)
	}
	if cfg, _, _ = mustLoad(t, sources{file: "-"}); cfg.ServicesPath() != "" {
		t.Errorf("services_dir %q without a file, want none", cfg.ServicesPath())
	}
	if cfg, _, _ = mustLoad(t, sources{file: "services_dir: off"}); cfg.ServicesPath() != "" {
		t.Errorf("services_dir %q, want none", cfg.ServicesPath())
	}
}

// cpu is what this process used so far, which does not depend on what else runs.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// A text of a megabyte costs about as much whether it is right or wrong.
func TestManyFindingsAreBounded(t *testing.T) {
	var unknown, wrong, lists strings.Builder
	unknown.WriteString("name: web\nport: 80\n")
	wrong.WriteString("services:\n")
	lists.WriteString("services:\n")
	for i := range 30_000 {
		fmt.Fprintf(&unknown, "k%d: 1\n", i)
		fmt.Fprintf(&wrong, " - {name: s%d}\n", i)
		fmt.Fprintf(&lists, " - {name: s%d, port: 1, hosts: [], routes: []}\n", i)
	}
	for name, text := range map[string]string{"unknown keys": unknown.String(), "wrong values": wrong.String(), "many lists": lists.String()} {
		t.Run(name, func(t *testing.T) {
			begun := cpu(t)
			services, _, err := ParseServices("web.yaml", []byte(text))
			if took := cpu(t) - begun; took > 10*time.Second {
				t.Errorf("took %v of a processor", took)
			}
			if name == "many lists" {
				if err != nil || len(services) != 30_000 {
					t.Fatalf("%d services, %v", len(services), err)
				}
				return
			}
			lines := strings.Split(err.Error(), "\n")
			if last := lines[len(lines)-1]; len(lines) != maxFindings+1 || last != "config: web.yaml: 29900 more findings are not shown; correct these first" {
				t.Errorf("%d lines, the last is %q", len(lines), last)
			}
		})
	}
}
