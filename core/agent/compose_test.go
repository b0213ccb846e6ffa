package agent

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/config"
	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/model"
)

// parse reads services as a file of services_dir has them.
func parse(t *testing.T, text string) []config.Service {
	t.Helper()
	list, _, err := config.ParseServices("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func from(t *testing.T, name, text string) listed {
	return listed{services: parse(t, text), where: func(i int) string { return fmt.Sprintf("%s:%d", name, i) }}
}

func TestAServiceBelongsToTheFirstThatHasIt(t *testing.T) {
	all, left := compose([]listed{
		from(t, "config", "services: [{name: web, port: 80, intercept: ['127.0.0.1:8001']}]"),
		from(t, "a.yaml", "services: [{name: web, port: 81}, {name: web, namespace: ops, port: 80}]"),
		from(t, "b.yaml", "services: [{name: db, port: 1, intercept: ['127.0.0.1:8001']}, {name: mail, port: 25}]"),
		from(t, "api", "services: [{name: mail, port: 26}]"),
	})
	var got []string
	for _, p := range all {
		got = append(got, p.key.String()+" "+p.where)
	}
	if want := []string{"default/web config:0", "ops/web a.yaml:1", "default/mail b.yaml:1"}; !reflect.DeepEqual(got, want) {
		t.Errorf("composed %q, want %q", got, want)
	}
	var why []string
	for _, u := range left {
		why = append(why, u.String())
	}
	if want := []string{
		"service default/web of a.yaml:0 is not used: config:0 has it too; keep one of them",
		"service default/db of b.yaml:0 is not used: default/web of config:0 captures 127.0.0.1:8001 too; an address leads to one service",
		"service default/mail of api:0 is not used: b.yaml:1 has it too; keep one of them",
	}; !reflect.DeepEqual(why, want) {
		t.Errorf("left out:\n%s\nwant\n%s", strings.Join(why, "\n"), strings.Join(want, "\n"))
	}
}

func TestDefinitionHasAllThatIsWritten(t *testing.T) {
	all, _ := compose([]listed{from(t, "f", `
services:
- name: web
  port: 80
  protocol: both
  vip: 10.200.0.10
  intercept: ["127.0.0.1:8001"]
  on_empty: refuse
  balance: hash
  affinity: 5m
  hosts: [shop.example.com]
  routes: [{host: a, path_prefix: /x, headers: {X-A: b}, methods: [GET]}]
  drain: 30s
  instances:
  - {id: web-1, address: "127.0.0.1:9001", host_port: 19001, weight: 7}
  - {id: web-2, address: "127.0.0.1:9002"}
- {namespace: ops, name: db, port: 53, protocol: udp}
`)})
	def := definition(all, netip.MustParseAddr("10.9.0.1"), map[string]int64{"default/web": 7})
	want := []model.Service{
		{
			Key: model.ServiceKey{Namespace: "default", Name: "web"}, Ports: []model.ServicePort{{Port: 80, Protocol: model.TCP}, {Port: 80, Protocol: model.UDP}},
			VIP: netip.MustParseAddr("10.200.0.10"), Intercept: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:8001")}, OnEmpty: model.OnEmptyRefuse,
			Balance: model.BalanceHash, Affinity: 5 * time.Minute, Hosts: []string{"shop.example.com"},
			Routes:    []model.Route{{Host: "a", PathPrefix: "/x", Headers: map[string]string{"X-A": "b"}, Methods: []string{"GET"}}},
			DrainTime: 30 * time.Second, Registered: 7,
		},
		{
			Key: model.ServiceKey{Namespace: "ops", Name: "db"}, Ports: []model.ServicePort{{Port: 53, Protocol: model.UDP}},
			Intercept: []netip.AddrPort{}, Hosts: []string{},
		},
	}
	if !reflect.DeepEqual(def.Services, want) {
		t.Errorf("services\n%+v\nwant\n%+v", def.Services, want)
	}
	if in := def.Instances; len(in) != 2 || in[0].HostPort != 19001 || in[0].Weight != 7 || in[1].Weight != 1 || in[1].Service != want[0].Key {
		t.Errorf("instances %+v", in)
	}
}

func TestChecksOfAllKinds(t *testing.T) {
	all, _ := compose([]listed{from(t, "f", `
name: web
port: 80
instances:
- id: a
  address: "127.0.0.1:9001"
  checks:
  - {http: "/x?y", interval: 2s, timeout: 1s, success_before_passing: 2, failures_before_critical: 3}
  - {http: "http://127.0.0.1:9002/z", interval: 500ms}
  - {tcp: true, interval: 1s}
  - {tcp: "127.0.0.1:9003", interval: 1s}
  - {grpc: "", interval: 1s}
  - {grpc: a.B, interval: 1s}
`)})
	addr := netip.MustParseAddrPort
	want := []health.Check{
		{Kind: health.HTTP, Path: "/x?y", Interval: 2 * time.Second, Timeout: time.Second, SuccessBeforePassing: 2, FailuresBeforeCritical: 3},
		{Kind: health.HTTP, Path: "/z", Address: addr("127.0.0.1:9002"), Interval: 500 * time.Millisecond, Timeout: 500 * time.Millisecond, SuccessBeforePassing: 1, FailuresBeforeCritical: 1},
		{Kind: health.TCP, Interval: time.Second, Timeout: time.Second, SuccessBeforePassing: 1, FailuresBeforeCritical: 1},
		{Kind: health.TCP, Address: addr("127.0.0.1:9003"), Interval: time.Second, Timeout: time.Second, SuccessBeforePassing: 1, FailuresBeforeCritical: 1},
		{Kind: health.GRPC, Interval: time.Second, Timeout: time.Second, SuccessBeforePassing: 1, FailuresBeforeCritical: 1},
		{Kind: health.GRPC, Service: "a.B", Interval: time.Second, Timeout: time.Second, SuccessBeforePassing: 1, FailuresBeforeCritical: 1},
	}
	got := checked(all)
	if len(got) != 1 || got[0].Key.ID != "a" || got[0].Addr != addr("127.0.0.1:9001") || !reflect.DeepEqual(got[0].Checks, want) {
		t.Errorf("checks\n%+v\nwant\n%+v", got, want)
	}
	for _, c := range got[0].Checks {
		if err := c.Validate(); err != nil {
			t.Errorf("the configuration accepts what health does not: %v", err)
		}
	}
}

// What the configuration accepts, health has to: nobody would tell otherwise.
func TestConfigAndHealthAgreeAboutTargets(t *testing.T) {
	for _, target := range []string{
		"/", "/healthz?a=b", "/ä", "/a b", "/a#b", "healthz", "/" + strings.Repeat("x", 1023), "/" + strings.Repeat("x", 1024),
		"http://127.0.0.1:1", "http://127.0.0.1:1/", "http://127.0.0.1/", "http://localhost:1/", "http://[::1]:1/x", "http://0.0.0.0:1/", "https://127.0.0.1:1/",
	} {
		_, _, bad := config.ParseServices("f", []byte(fmt.Sprintf(`{"name":"a","port":1,"instances":[{"id":"a","address":"127.0.0.1:1","checks":[{"http":%q,"interval":"1s"}]}]}`, target)))
		if _, err := health.ParseHTTP(target); (err == nil) != (bad == nil) {
			t.Errorf("%.40q: the configuration says %v, health %v", target, bad, err)
		}
	}
}

func TestStatesOfDrainingInstances(t *testing.T) {
	all, _ := compose([]listed{from(t, "f", `
services:
- {name: web, port: 80, drain: 10s, instances: [{id: a, address: "127.0.0.1:1"}, {id: b, address: "127.0.0.1:2"}]}
- {name: db, port: 1, instances: [{id: a, address: "127.0.0.1:3"}]}
`)})
	at := func(s int) time.Time { return time.Unix(1000+int64(s), 0) }
	healthy := map[health.InstanceKey]health.Status{}
	for _, in := range checked(all) {
		healthy[in.Key] = health.Status{Passing: true}
	}
	d := &drains{}
	want := func(now int, next int, words ...string) {
		t.Helper()
		states, due := d.states(all, healthy, at(now))
		var got []string
		for _, s := range states {
			got = append(got, s.String())
		}
		if !reflect.DeepEqual(got, words) {
			t.Errorf("after %d s: %q, want %q", now, got, words)
		}
		if next == 0 && !due.IsZero() || next != 0 && !due.Equal(at(next)) {
			t.Errorf("after %d s: next at %v, want after %d s", now, due, next)
		}
	}
	want(0, 0, "passing", "passing", "passing")
	d.wanted = d.wanted.with(out{"default/web", "a"})
	want(5, 15, "draining", "passing", "passing")
	d.wanted = d.wanted.with(out{Service: "default/web"})
	want(8, 15, "draining", "draining", "passing")
	want(16, 18, "drained", "draining", "passing")
	d.wanted = d.wanted.with(out{})
	want(17, 18, "drained", "draining", "draining")
	// Without a drain time it drains for as long as it is out.
	want(999, 0, "drained", "drained", "draining")
	// One whose check fails gets no connections as it is.
	healthy[health.InstanceKey{Service: all[1].key, ID: "a"}] = health.Status{}
	want(1000, 0, "drained", "drained", "critical")
	d.wanted = nil
	want(1001, 0, "passing", "passing", "critical")
	d.stopping = true
	want(1002, 0, "draining", "draining", "critical")
	want(1100, 0, "draining", "draining", "critical")
}

func TestMaintenance(t *testing.T) {
	web, webA, node := out{Service: "default/web"}, out{"default/web", "a"}, out{}
	key := model.ServiceKey{Namespace: "default", Name: "web"}
	var m maintenance
	if m.covers(key, "a") {
		t.Error("nothing covers an instance")
	}
	if m = m.with(webA); !m.covers(key, "a") || m.covers(key, "b") {
		t.Errorf("%v", m)
	}
	if m = m.with(web); len(m) != 1 || !m.covers(key, "b") || m.covers(model.ServiceKey{Namespace: "ops", Name: "web"}, "b") {
		t.Errorf("%v: the instance is part of the service", m)
	}
	if again := m.with(webA); !reflect.DeepEqual(again, m) {
		t.Errorf("%v: a part was added", again)
	}
	if left := m.without(webA); !reflect.DeepEqual(left, m) {
		t.Errorf("%v: a part was taken out of the whole", left)
	}
	if left := m.with(node).without(node); len(left) != 0 {
		t.Errorf("%v stays", left)
	}
	dir := t.TempDir()
	if err := m.save(dir); err != nil {
		t.Fatal(err)
	}
	if again, err := readMaintenance(dir); err != nil || !reflect.DeepEqual(again, m) {
		t.Errorf("read %v, %v, want %v", again, err, m)
	}
}

func TestRegistrations(t *testing.T) {
	r := registrations{}
	add := func(text string, replace bool) {
		t.Helper()
		for _, s := range parse(t, text) {
			r = r.with(s, replace)
		}
	}
	ids := func(name string) string {
		var all []string
		for _, in := range r[model.ServiceKey{Namespace: "default", Name: name}].Instances {
			all = append(all, in.ID+"@"+in.Address.String())
		}
		return strings.Join(all, " ")
	}
	add(`{name: web, port: 80, instances: [{id: a, address: "127.0.0.1:1"}, {id: b, address: "127.0.0.1:2"}]}`, false)
	before := r
	add(`{name: web, port: 80, instances: [{id: b, address: "127.0.0.1:2"}]}`, false)
	if !r.equal(before) {
		t.Errorf("a part of the same again changed it: %v", r)
	}
	add(`{name: web, port: 80, instances: [{id: c, address: "127.0.0.1:3"}, {id: a, address: "127.0.0.1:9"}]}`, false)
	if got, want := ids("web"), "a@127.0.0.1:9 b@127.0.0.1:2 c@127.0.0.1:3"; got != want {
		t.Errorf("instances %s, want %s", got, want)
	}
	if got := len(before[model.ServiceKey{Namespace: "default", Name: "web"}].Instances); got != 2 {
		t.Errorf("what was before has %d instances now", got)
	}
	add(`{name: web, port: 81, instances: [{id: c, address: "127.0.0.1:3"}]}`, true)
	if got := ids("web"); got != "c@127.0.0.1:3" {
		t.Errorf("instances %s after a replacement", got)
	}
	web := model.ServiceKey{Namespace: "default", Name: "web"}
	if _, _, found := r.without(web, "a"); found {
		t.Error("one that is gone was found")
	}
	dir := t.TempDir()
	if err := r.save(dir); err != nil {
		t.Fatal(err)
	}
	if again, err := readRegistrations(dir); err != nil || !again.equal(r) {
		t.Errorf("read %v, %v, want %v", again, err, r)
	}
	next, gone, found := r.without(web, "c")
	if !found || len(next) != 0 || !reflect.DeepEqual(gone, []string{"c"}) {
		t.Errorf("without its last instance: %v, gone %q", next, gone)
	}
}

// A restart does not make a service look newly defined; a service that went
// away and came back does.
func TestBirthsSurviveRestarts(t *testing.T) {
	for _, kept := range []bool{true, false} {
		dir := ""
		if kept {
			dir = t.TempDir()
		}
		b, err := readBirths(dir)
		if err != nil {
			t.Fatal(err)
		}
		at := func(now int64, names ...string) map[string]int64 {
			t.Helper()
			if kept { // a restart
				if b, err = readBirths(dir); err != nil {
					t.Fatal(err)
				}
			}
			var all []placed
			for _, n := range names {
				all = append(all, placed{key: model.ServiceKey{Namespace: "default", Name: n}})
			}
			got := b.of(all, now)
			if err := b.keep(got); err != nil {
				t.Fatal(err)
			}
			return got
		}
		if got := at(1000, "a"); got["default/a"] != 1000 {
			t.Fatalf("first %v", got)
		}
		if got := at(2000, "a", "b"); got["default/a"] != 1000 || got["default/b"] != 2000 {
			t.Fatalf("second %v", got)
		}
		at(2500, "b")
		if got := at(3000, "a", "b"); got["default/a"] != 3000 || got["default/b"] != 2000 {
			t.Fatalf("after a was gone %v", got)
		}
	}
}
