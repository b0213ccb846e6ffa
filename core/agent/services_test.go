package agent

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/core/config"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/test/await"
)

// pair starts two agents that know each other.
func pair(t *testing.T) (n1, n2 *running) {
	t.Helper()
	return pairOf(t, testConfig(t, "n1"), testConfig(t, "n2"))
}

func pairOf(t *testing.T, cfg1, cfg2 *config.Config) (n1, n2 *running) {
	t.Helper()
	n1 = start(t, Options{Loaded: loaded(cfg1)})
	status, err := n1.api.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cfg2.Cluster.Join = []string{status.Addr}
	n2 = start(t, Options{Loaded: loaded(cfg2)})
	for _, n := range []*running{n1, n2} {
		await.For(t, "both to know each other", func() bool {
			members, err := n.api.Members(t.Context())
			return err == nil && len(members) == 2
		})
		await.For(t, "the end of the start", func() bool { return strings.Contains(n.log.String(), "msg=ready") })
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of n1:\n%slog of n2:\n%s", n1.log, n2.log)
		}
	})
	return n1, n2
}

// backend is an instance that only takes connections.
func backend(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// endpoints is what an agent says of a service: INSTANCE:REASON, by node.
func (r *running) endpoints(t *testing.T, service string) string {
	t.Helper()
	d, err := r.api.Endpoints(t.Context(), service)
	if err != nil {
		return err.Error()
	}
	var words []string
	for _, e := range d.Endpoints {
		words = append(words, e.Node+"/"+e.Instance+":"+e.Reason)
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

func (r *running) sees(t *testing.T, service, want string) {
	t.Helper()
	got := ""
	defer func() {
		if t.Failed() {
			t.Logf("%s: %s is %q, want %q", r.config().Node.Name, service, got, want)
		}
	}()
	await.For(t, service+" to be "+want, func() bool { got = r.endpoints(t, service); return got == want })
}

func (r *running) register(t *testing.T, definition string) client.Registration {
	t.Helper()
	done, err := r.api.Register(t.Context(), "test", definition, false)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// version is what services an agent shows, and how often it told the cluster what runs
// on it.
func (r *running) version(t *testing.T) string {
	t.Helper()
	list, err := r.api.Services(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%+v, %v", list.Services, r.members.Snapshot().Self.RecordSeq)
}

func TestRegisteredInstanceIsAnEndpointElsewhere(t *testing.T) {
	n1, n2 := pair(t)
	instance := backend(t)
	definition := fmt.Sprintf(`{name: web, port: 80, instances: [{id: a, address: %q, checks: [{tcp: true, interval: 100ms, failures_before_critical: 20}]}]}`, instance.Addr())
	if done := n1.register(t, definition); !done.Changed || !reflect.DeepEqual(done.Services, []string{"default/web"}) {
		t.Errorf("registered %+v", done)
	}
	n1.sees(t, "web", "n1/a:ready")
	n2.sees(t, "web", "n1/a:ready")

	// The same again is no news for anybody, and the health stays.
	before := n1.version(t)
	if done := n1.register(t, definition); done.Changed {
		t.Error("the same again is a change")
	}
	if got := n1.endpoints(t, "web"); got != "n1/a:ready" {
		t.Errorf("after the same again %s", got)
	}
	if after := n1.version(t); after != before {
		t.Errorf("the same again: %s, before %s", after, before)
	}

	d, err := n1.api.Endpoints(t.Context(), "web")
	if err != nil || len(d.Endpoints) != 1 || d.Service.Source != "api" || d.Service.Ready != 1 || d.Service.Total != 1 || d.Service.DefinedBy != "n1" {
		t.Fatalf("on n1 %+v, %v", d, err)
	}
	if e := d.Endpoints[0]; !e.Own || !e.In || e.Addr != instance.Addr().String() || len(e.Checks) != 1 || !e.Checks[0].Passing || e.Checks[0].Kind != "tcp" || e.Checks[0].Target != instance.Addr().String() {
		t.Errorf("on n1 %+v", e)
	}
	if d, err = n2.api.Endpoints(t.Context(), "web"); err != nil || d.Service.Source != "" || d.Endpoints[0].Own || d.Endpoints[0].Checks != nil {
		t.Errorf("on n2 %+v, %v", d, err)
	}

	// Nobody listens any more: the check fails, and the endpoint goes everywhere.
	instance.Close()
	n2.sees(t, "web", "n1/a:failing")
	n1.sees(t, "web", "n1/a:failing")
	await.Until(t, func() string { // any one check may also run out of time
		if d, err = n1.api.Endpoints(t.Context(), "web"); err != nil || !strings.Contains(d.Endpoints[0].Detail, "refused") || d.Endpoints[0].In {
			return fmt.Sprintf("on n1 %+v, %v, want the check's words", d.Endpoints, err)
		}
		return ""
	})

	gone, err := n1.api.Deregister(t.Context(), "web", "")
	if err != nil || !reflect.DeepEqual(gone, []string{"a"}) {
		t.Errorf("gone %q, %v", gone, err)
	}
	for _, n := range []*running{n1, n2} {
		n.sees(t, "web", "endpoints: no node has a service default/web")
	}
}

func TestRegistrationsOutliveARestart(t *testing.T) {
	cfg1, cfg2 := testConfig(t, "n1"), testConfig(t, "n2")
	n1, n2 := pairOf(t, cfg1, cfg2)
	instance := backend(t)
	n1.register(t, fmt.Sprintf(`{name: web, port: 80, instances: [
		{id: a, address: %q, checks: [{tcp: true, interval: 1h, timeout: 1s, failures_before_critical: 3}]}, {id: b, address: "127.0.0.1:1"}]}`, instance.Addr()))
	n2.sees(t, "web", "n1/a:ready n1/b:ready")
	if changed, err := n1.api.Maintenance(t.Context(), true, "web", "b"); err != nil || !changed {
		t.Fatalf("maintenance: %v, %v", changed, err)
	}
	n2.sees(t, "web", "n1/a:ready n1/b:draining")
	d, err := n2.api.Endpoints(t.Context(), "web")
	if err != nil {
		t.Fatal(err)
	}
	first := d.Definitions[0].Registered

	n1.cancel()
	if err := n1.wait(t); err != nil {
		t.Fatal(err)
	}
	n2.sees(t, "web", "n1/a:node-left n1/b:node-left")
	instance.Close()
	status, err := n2.api.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cfg1.Cluster.Join = []string{status.Addr}
	n1 = start(t, Options{Loaded: loaded(cfg1)})
	// No probe succeeds any more, and the third is two hours away: that it
	// passed was kept.
	n2.sees(t, "web", "n1/a:ready n1/b:draining")
	if d, err = n2.api.Endpoints(t.Context(), "web"); err != nil || !d.Definitions[0].Registered.Equal(first) {
		t.Errorf("registered at %v after the restart, %v before: %v", d.Definitions[0].Registered, first, err)
	}
	if want := "instance b of service default/web"; !strings.Contains(n1.log.String(), want) {
		t.Errorf("the log does not say that %s is in maintenance:\n%s", want, n1.log)
	}
	if changed, err := n1.api.Maintenance(t.Context(), false, "", ""); err != nil || !changed {
		t.Errorf("maintenance: %v, %v", changed, err)
	}
	n2.sees(t, "web", "n1/a:ready n1/b:ready")
}

// In memory nothing is kept, and nothing is written.
func TestRegistrationsInMemory(t *testing.T) {
	cfg := testConfig(t, "n1")
	cfg.Node.InMemory = true
	n1 := start(t, Options{Loaded: loaded(cfg)})
	n1.register(t, `{name: web, port: 80, instances: [{id: a, address: "127.0.0.1:1"}]}`)
	n1.sees(t, "web", "n1/a:ready")
	if _, err := n1.api.Maintenance(t.Context(), true, "", ""); err != nil {
		t.Error(err)
	}
	n1.sees(t, "web", "n1/a:draining")
	if _, err := os.Stat(cfg.Node.DataDir); !os.IsNotExist(err) {
		t.Errorf("the data directory: %v, want none", err)
	}
}

func TestDisagreementIsShown(t *testing.T) {
	n1, n2 := pair(t)
	n1.register(t, `{name: web, port: 80, instances: [{id: a, address: "127.0.0.1:1"}]}`)
	n2.sees(t, "web", "n1/a:ready")
	n2.register(t, `{name: web, port: 81, vip: 10.200.0.9, instances: [{id: a, address: "127.0.0.1:2"}]}`)
	for _, n := range []*running{n1, n2} {
		n.sees(t, "web", "n1/a:ready n2/a:ready")
		d, err := n.api.Endpoints(t.Context(), "web")
		if err != nil {
			t.Fatal(err)
		}
		if s := d.Service; s.DefinedBy != "n1" || !reflect.DeepEqual(s.Disagreeing, []string{"n2"}) || !reflect.DeepEqual(s.Ports, []string{"80/tcp"}) || s.VIP != "" {
			t.Errorf("service %+v", s)
		}
		slices.SortFunc(d.Definitions, func(a, b client.Definition) int { return strings.Compare(a.Node, b.Node) })
		if a, b := d.Definitions[0], d.Definitions[1]; !a.Counts || a.Says != "port 80/tcp" || a.Differs != nil || b.Counts || !b.Up ||
			b.Says != "port 81/tcp, vip 10.200.0.9" || !reflect.DeepEqual(b.Differs, []string{"port", "vip"}) || !a.Registered.Before(b.Registered) {
			t.Errorf("definitions %+v", d.Definitions)
		}
	}
}

func TestWhatCannotBeRegisteredIsNamed(t *testing.T) {
	cfg := testConfig(t, "n1")
	cfg.Services = parse(t, `{name: web, port: 80, intercept: ["127.0.0.1:8001"], instances: [{id: a, address: "127.0.0.1:1"}]}`)
	n1 := start(t, Options{Loaded: Loaded{Config: cfg, Origins: config.Origins{"services[0]": {Layer: config.LayerFile, Name: "/f.yaml", Line: 3}}}})
	n1.register(t, `{name: db, port: 1, instances: [{id: a, address: "127.0.0.1:1"}]}`)
	before := n1.version(t)
	many := `{name: many, port: 1, instances: [{id: i0, address: "127.0.0.1:1"}`
	for i := range 8200 {
		many += fmt.Sprintf(`, {id: i%d, address: "127.0.0.1:1"}`, i+1)
	}
	for definition, want := range map[string]string{
		``:                                "register: test has no service",
		`{name: web, port: 80}`:           "register: service default/web cannot be registered: /f.yaml:3 has it: change it there, or remove it there first",
		"services:\n- {name: x, port: 0}": "register: test:2:19: services[0].port: is 0 or missing; set the service's port on its VIP, 1 to 65535",
		`{name: X, port: 1, nmae: y}`:     "register: test:1:20: nmae: unknown key; did you mean name?",
		`{name: a, port: 1, intercept: ["127.0.0.1:8001"]}`:                                                              "register: service default/a cannot be registered: default/web of /f.yaml:3 captures 127.0.0.1:8001 too; an address leads to one service",
		`{name: a, port: 1, instances: [{id: a, address: web}]}`:                                                         `register: test:1:49: instances[0].address: is "web"; expected ip:port such as 127.0.0.1:7400 or [::1]:7400`,
		`{name: a, port: 1, instances: [{id: a, address: "127.0.0.1:1"}, {id: a, address: "127.0.0.1:2"}]}`:              `register: test:1:70: instances[1].id: is "a", like that of instances[0]; ids are unique in a service`,
		`{name: a, port: 1, instances: [{id: a, address: "127.0.0.1:1", checks: [{ping: x, interval: 1s}]}]}`:            "register: test:1:74: instances[0].checks[0].ping: unknown key; known here: http, tcp, grpc, interval, timeout, success_before_passing, failures_before_critical",
		`{name: a, port: 1, instances: [{id: a, address: "127.0.0.1:1", checks: [{http: /, tcp: true, interval: 1s}]}]}`: "register: test:1:73: instances[0].checks[0]: is http and tcp at once; make each a check of its own",
		many + "]}": "register: record: bad node record: 8203 instances on one node",
	} {
		_, err := n1.api.Register(t.Context(), "test", definition, false)
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.60s: got  %v\nwant %s", definition, err, want)
		}
	}
	for want, call := range map[string]func() error{
		"deregister: service default/web was not registered: /f.yaml:3 has it, remove it there": func() error { _, err := n1.api.Deregister(t.Context(), "web", ""); return err },
		"deregister: service default/dbs is not registered on this node; did you mean db?": func() error {
			_, err := n1.api.Deregister(t.Context(), "dbs", "")
			return err
		},
		`deregister: service default/db has no instance "zzz" registered on this node; there are: a`: func() error {
			_, err := n1.api.Deregister(t.Context(), "db", "zzz")
			return err
		},
		"maintenance: service default/x does not run on this node; there are: web, db": func() error {
			_, err := n1.api.Maintenance(t.Context(), true, "x", "")
			return err
		},
		`maintenance: service default/db has no instance "b" on this node; did you mean a?`: func() error {
			_, err := n1.api.Maintenance(t.Context(), true, "db", "b")
			return err
		},
	} {
		if err := call(); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	if after := n1.version(t); after != before {
		t.Errorf("what was refused changed something: %s, before %s", after, before)
	}
	if n1.endpoints(t, "web") != "n1/a:ready" || n1.endpoints(t, "db") != "n1/a:ready" {
		t.Errorf("web %s, db %s", n1.endpoints(t, "web"), n1.endpoints(t, "db"))
	}
}

// All three ways on one node, and what becomes of each when its place changes.
func TestFilesReloadsAndClientsTogether(t *testing.T) {
	cfg1 := testConfig(t, "n1")
	cfg1.ServicesDir = filepath.Join(filepath.Dir(cfg1.Node.DataDir), "services.d")
	cfg1.Services = parse(t, `{name: web, port: 80, instances: [{id: a, address: "127.0.0.1:1"}]}`)
	next := make(chan Loaded, 1)
	n1 := start(t, Options{Loaded: loaded(cfg1), Reload: func() (Loaded, error) { return <-next, nil }})
	await.For(t, "the end of the start", func() bool { return strings.Contains(n1.log.String(), "msg=ready") })
	status, err := n1.api.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cfg2 := testConfig(t, "n2")
	cfg2.Cluster.Join = []string{status.Addr}
	n2 := start(t, Options{Loaded: loaded(cfg2)})

	if err := os.MkdirAll(cfg1.ServicesDir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(cfg1.ServicesDir, "db.yaml")
	write := func(text string) {
		t.Helper()
		if err := replace(file, text); err != nil {
			t.Fatal(err)
		}
	}
	reload := func(change func(*config.Config)) {
		t.Helper()
		changed := *n1.config()
		change(&changed)
		before := strings.Count(n1.log.String(), "msg=reloaded")
		next <- Loaded{Config: &changed, Origins: config.Origins{}}
		n1.signals <- syscall.SIGHUP
		await.For(t, "the reload", func() bool { return strings.Count(n1.log.String(), "msg=reloaded") > before })
	}
	write(`{name: db, port: 1, instances: [{id: a, address: "127.0.0.1:2"}]}`)
	reload(func(*config.Config) {}) // looks into the directory, too
	n1.register(t, `{name: mail, port: 25, instances: [{id: a, address: "127.0.0.1:3"}]}`)
	for _, service := range []string{"web", "db", "mail"} {
		n2.sees(t, service, "n1/a:ready")
	}

	// A bad file: what it said stays, the others are not harmed.
	write("name: db\nport: x\n")
	await.For(t, "the error", func() bool { return strings.Contains(n1.log.String(), file+":2:7: port") })
	for _, service := range []string{"web", "db", "mail"} {
		n2.sees(t, service, "n1/a:ready")
	}
	reload(func(c *config.Config) {
		c.Services = parse(t, `{name: web, port: 80, instances: [{id: b, address: "127.0.0.1:1"}]}`)
	})
	n2.sees(t, "web", "n1/b:ready")

	// A client's service that a file takes over is the file's, until that goes.
	write(`services: [{name: mail, port: 26, instances: [{id: f, address: "127.0.0.1:4"}]}]`)
	n2.sees(t, "mail", "n1/f:ready")
	n2.sees(t, "db", "endpoints: no node has a service default/db; there are: mail, web")
	if d, err := n1.api.Endpoints(t.Context(), "mail"); err != nil || d.Service.Source != file+":1" {
		t.Errorf("source %q, %v", d.Service.Source, err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	n2.sees(t, "mail", "n1/a:ready")
	reload(func(c *config.Config) { c.Services = nil })
	n2.sees(t, "web", "endpoints: no node has a service default/web; there are: mail")
}

// SIGTERM: the others see instances drain before the node leaves.
func TestInstancesDrainBeforeTheNodeLeaves(t *testing.T) {
	cfg1, cfg2 := testConfig(t, "n1"), testConfig(t, "n2")
	cfg1.ShutdownDrain = 5 * time.Second // to be looked at, also by a machine that stops for some of them
	patient(cfg1, cfg2)
	n1, n2 := pairOf(t, cfg1, cfg2)
	n1.register(t, `{name: web, port: 80, instances: [{id: a, address: "127.0.0.1:1"}]}`)
	n2.sees(t, "web", "n1/a:ready")
	n1.signals <- syscall.SIGTERM
	n2.sees(t, "web", "n1/a:draining")
	members, err := n2.api.Members(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		if m.State != model.StateAlive {
			t.Errorf("%s is %v while it drains", m.Name, m.State)
		}
	}
	if err := n1.wait(t); err != nil {
		t.Fatal(err)
	}
	n2.sees(t, "web", "n1/a:node-left")

	// Without instances, and without anybody to see it, a stop does not wait.
	begun := time.Now()
	n2.cancel()
	if err := n2.wait(t); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); strings.Contains(n2.log.String(), "msg=draining") {
		t.Errorf("it drained nothing, for %v", took)
	}
}

func TestDamagedStateIsNamed(t *testing.T) {
	for _, name := range []string{registeredFile, registrationsFile, maintenanceFile} {
		cfg := testConfig(t, "n1")
		if err := os.MkdirAll(cfg.Node.DataDir, 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(cfg.Node.DataDir, name)
		if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := prepare(t, Options{Loaded: loaded(cfg)}).Run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want an error that names it", name, err)
		}
	}
}

// bulky is a file with so many services, the first of which has an instance.
func bulky(name string, services int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "services:\n- {name: %s, port: 1, instances: [{id: i, address: '127.0.0.1:1'}]}\n", name)
	for i := range services - 1 {
		fmt.Fprintf(&b, "- {name: %s%d, port: 1}\n", name, i)
	}
	return b.String()
}

// A file that says more than a node can hold harms neither the start nor any
// other file, and counts once there is room.
func TestFileWithoutRoom(t *testing.T) {
	cfg := testConfig(t, "n1")
	cfg.ServicesDir = filepath.Join(filepath.Dir(cfg.Node.DataDir), "services.d")
	path := func(name string) string { return filepath.Join(cfg.ServicesDir, name) }
	write := func(name, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(cfg.ServicesDir, 0o755), replace(path(name), text)); err != nil {
			t.Fatal(err)
		}
	}
	write("a.yaml", bulky("a", 4000))
	write("b.yaml", bulky("b", 5000))
	write("c.yaml", bulky("c", 100))
	n := start(t, Options{Loaded: loaded(cfg)})
	// Files of thousands of services take long to read on a busy machine, and so does the
	// question for a service that is not there: all others are compared with it.
	shows := func(service string) {
		t.Helper()
		await.Within(t, 4*await.Patience, service+" in the view", func() bool {
			return n.planes.views.Latest().Service(model.ServiceKey{Namespace: "default", Name: service}) != nil
		})
		n.sees(t, service, "n1/i:ready")
	}
	shows("a")
	shows("c")
	n.sees(t, "b", "endpoints: no node has a service default/b; did you mean a?")
	if said := n.log.String(); !strings.Contains(said, path("b.yaml")) || !strings.Contains(said, "9000 services on one node") {
		t.Errorf("the log does not say that there is no room:\n%s", said)
	}
	// A client is served beside it, and so is a new file.
	n.register(t, `{name: api, port: 2, instances: [{id: a, address: "127.0.0.1:3"}]}`)
	write("d.yaml", bulky("d", 2))
	shows("d")
	// One that outgrows the room stays as it was.
	write("c.yaml", bulky("c", 5000))
	await.Within(t, 4*await.Patience, "the error", func() bool { return strings.Contains(n.log.String(), path("c.yaml")) })
	shows("c")
	if err := os.Remove(path("a.yaml")); err != nil {
		t.Fatal(err)
	}
	shows("b")
	shows("c")
	if again := strings.Count(n.log.String(), path("c.yaml")); again > 3 {
		t.Errorf("the log names a file %d times", again)
	}
}

// What cannot be kept is not taken back either: the instance passes on, and
// the service is as old as before.
func TestFailedDeregistrationChangesNothing(t *testing.T) {
	n1, _ := pair(t)
	n1.register(t, `{name: web, port: 80, instances: [{id: a, address: "127.0.0.1:1"}]}`)
	s := n1.services
	s.mu.Lock()
	born := s.births.at["default/web"]
	s.mu.Unlock()
	block := filepath.Join(s.dir, registrationsFile+".tmp")
	if err := os.MkdirAll(filepath.Join(block, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := n1.api.Deregister(t.Context(), "web", ""); err == nil || !strings.Contains(err.Error(), registrationsFile) {
		t.Errorf("deregistered with %v", err)
	}
	if err := os.RemoveAll(block); err != nil {
		t.Fatal(err)
	}
	if kept, err := readBirths(s.dir); err != nil || kept.at["default/web"] != born {
		t.Errorf("the service counts as registered at %v, at %d before: %v", kept.at, born, err)
	}
	n1.sees(t, "web", "n1/a:ready")
}
