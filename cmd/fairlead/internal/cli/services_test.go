package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/api"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/test/short"
)

// fakeServices has one service that all agree about and one that they do not.
type fakeServices struct {
	asked *[]string
	err   error
}

func (fakeServices) Services() api.ServiceList {
	return api.ServiceList{Epoch: 7, Completeness: "exchanged", Services: []api.Service{
		{Key: model.ServiceKey{Namespace: "default", Name: "web"}, VIP: "10.200.0.10", Ports: []string{"80/tcp"}, Ready: 2, Total: 5, DefinedBy: "n1", DefinedByID: 0xa1, Disagreeing: []string{"n2"}, Source: "/etc/fairlead/fairlead.yaml:12"},
		{Key: model.ServiceKey{Namespace: "ops", Name: "db"}, Ports: []string{"53/tcp", "53/udp"}, Total: 1, DefinedBy: "n2", DefinedByID: 0xa2, Conflicts: []api.Conflict{
			{Kind: "frontend", What: "10.200.0.10:53/tcp", Holder: model.ServiceKey{Namespace: "default", Name: "web"}, Node: "n1", Since: now().Add(-time.Hour), Remedy: "give ops/db another address, or deregister default/web"},
		}},
	}}
}

func (f fakeServices) Endpoints(key model.ServiceKey) (api.ServiceDetail, error) {
	if key.Name != "web" {
		return api.ServiceDetail{}, &api.Refusal{Kind: api.ErrNotFound, Err: fmt.Errorf("no node has a service %s", key)}
	}
	at := now().Add(-time.Hour)
	return api.ServiceDetail{
		Epoch: 7, Completeness: "incomplete", Service: f.Services().Services[0],
		Definitions: []api.Definition{
			{Node: "n1", NodeID: 0xa1, Counts: true, Up: true, Registered: at, Says: "port 80/tcp, vip 10.200.0.10"},
			{Node: "n2", NodeID: 0xa2, Up: true, Registered: at.Add(time.Minute), Says: "port 81/tcp", Differs: []string{"port", "vip"}},
		},
		Endpoints: []api.Endpoint{ // n2 first: listings are by name
			{Node: "n2", NodeID: 0xa2, Instance: "web-1", In: true, Reason: "node-suspect", Addr: "10.9.0.2:9001", AddrForeign: "10.9.0.2:9001", State: "passing", Since: at, Weight: 1, Detail: "node n2 is suspect"},
			{
				Node: "n1", NodeID: 0xa1, Instance: "web-1", In: true, Reason: "ready", Addr: "127.0.0.1:9001", AddrForeign: "10.9.0.1:19001", State: "passing", Since: at, Weight: 1, Own: true,
				Checks: []api.CheckResult{{Kind: "http", Target: "http://127.0.0.1:9001/healthz", Passing: true, Output: "200 OK\nfine", At: at, Successes: 3}},
			},
			{
				Node: "n1", NodeID: 0xa1, Instance: "web-2", Reason: "failing", State: "critical", Since: at, Weight: 10, Own: true,
				Detail: "http http://127.0.0.1:9002/healthz: 503\x1b[2J" + strings.Repeat(" long", 40),
				Checks: []api.CheckResult{{Kind: "http", Target: "http://127.0.0.1:9002/healthz"}},
			},
		},
	}, nil
}

func (f fakeServices) note(format string, args ...any) error {
	*f.asked = append(*f.asked, fmt.Sprintf(format, args...))
	return f.err
}

func (f fakeServices) Register(name, definition string, replace bool) (api.Registration, error) {
	err := f.note("register %q %v %s", name, replace, definition)
	services := []model.ServiceKey{{Namespace: "default", Name: "web"}}
	if strings.Contains(definition, "name: db") {
		services = append(services, model.ServiceKey{Namespace: "ops", Name: "db"})
	}
	return api.Registration{Services: services, Changed: !strings.Contains(definition, "again")}, err
}

func (f fakeServices) Deregister(key model.ServiceKey, instance string) ([]string, error) {
	return []string{"web-1", "web-2"}, f.note("deregister %s %q", key, instance)
}

func (f fakeServices) Maintain(on bool, key model.ServiceKey, instance string) (bool, error) {
	return on, f.note("maintenance %v %q %q", on, key.Name, instance)
}

// serveServices answers for services on a socket until the test ends.
func serveServices(t *testing.T, f fakeServices) (socket string) {
	t.Helper()
	socket = filepath.Join(short.Dir(t), "api.sock")
	l, err := api.ListenUnix(socket)
	if err != nil {
		t.Fatal(err)
	}
	a := fakeAgent{}
	server := api.NewServer(api.Backend{Identity: a, Members: a, Events: a, Settings: a, Services: f, Registrar: f}, slog.New(slog.DiscardHandler))
	server.Serve(l, api.AccessAll)
	t.Cleanup(func() { server.Stop(t.Context()) })
	return socket
}

func TestServiceListings(t *testing.T) {
	socket := serveServices(t, fakeServices{asked: new([]string)})
	for file, args := range map[string]string{
		"services.txt":   "services",
		"services.json":  "services -o json",
		"endpoints.txt":  "endpoints web",
		"endpoints.json": "endpoints web -o json",
	} {
		t.Run(args, func(t *testing.T) {
			cmd := newCommand(t)
			if code := cmd.run(append(strings.Fields(args), "--api", socket)...); code != 0 {
				t.Fatalf("exit code %d: %s", code, cmd.err.String())
			}
			golden(t, file, cmd.out.String())
			if note := cmd.err.String(); strings.HasPrefix(args, "endpoints") != strings.Contains(note, "may not know of all services yet") {
				t.Errorf("stderr %q", note)
			}
			const lost = "fairlead: service ops/db does not get frontend 10.200.0.10:53/tcp: service default/web has it (registered "
			if strings.HasPrefix(args, "services") && !strings.Contains(args, "json") != strings.Contains(cmd.err.String(), lost) {
				t.Errorf("stderr %q", cmd.err.String())
			}
		})
	}
	cmd := newCommand(t)
	if code := cmd.run("endpoints", "nope", "--api", socket); code != ExitFailed || cmd.err.String() != "fairlead: endpoints: no node has a service default/nope\n" {
		t.Errorf("exit code %d: %s", code, cmd.err.String())
	}
	cmd = newCommand(t)
	if code := cmd.run("__complete", "--api", socket, "endpoints", ""); code != 0 || !strings.HasPrefix(cmd.out.String(), "web\nops/db\n") {
		t.Errorf("completion, exit code %d: %q", code, cmd.out.String())
	}
}

func TestRegisterAsks(t *testing.T) {
	file := writeFile(t, "name: web\nport: 80\n")
	for _, c := range []struct{ args, asked, said string }{
		{
			"register web --port 80 --instance web-1 --address 127.0.0.1:9001 --host-port 19001 --weight 3 --check http=/healthz,interval=2s,timeout=1s --check tcp,interval=1s,failures_before_critical=2 --check grpc,interval=1s",
			`register "" false {"affinity":"0s","balance":"default","drain":"0s","instances":[{"address":"127.0.0.1:9001","checks":[{"http":"/healthz","interval":"2s","timeout":"1s"},{"failures_before_critical":2,"interval":"1s","tcp":"true"},{"grpc":"","interval":"1s"}],"host_port":19001,"id":"web-1","weight":3}],"name":"web","namespace":"default","on_empty":"pass","port":80,"protocol":"tcp"}`,
			"registered default/web\n",
		},
		{
			"register ops/web --port 80 --protocol both --vip 10.200.0.1 --intercept 127.0.0.1:1 --intercept 127.0.0.1:2 --on-empty refuse --balance hash --affinity 1m --host a.example.com --drain 5s --replace",
			`register "" true {"affinity":"1m0s","balance":"hash","drain":"5s","hosts":["a.example.com"],"intercept":["127.0.0.1:1","127.0.0.1:2"],"name":"web","namespace":"ops","on_empty":"refuse","port":80,"protocol":"both","vip":"10.200.0.1"}`,
			"registered default/web\n",
		},
		{"register -f " + file, `register "` + file + `" false name: web` + "\nport: 80\n", "registered default/web\n"},
		{"register " + file + " --replace -o json", `register "` + file + `" true name: web` + "\nport: 80\n", `{"services":["default/web"],"changed":true,"conflicts":[]}` + "\n"},
		{"register -", `register "-" false {name: again}`, "was registered already, nothing changed: default/web\n"},
		{"deregister web", `deregister default/web ""`, "deregistered web: web-1, web-2\n"},
		{"deregister ops/db --instance a -o json", `deregister ops/db "a"`, `{"service":"ops/db","instances":["web-1","web-2"]}` + "\n"},
		{"maintenance on", `maintenance true "" ""`, "maintenance is on\n"},
		{"maintenance off --service web --instance a", `maintenance false "web" "a"`, "maintenance was off already, nothing changed\n"},
		{"maintenance on --service web -o json", `maintenance true "web" ""`, `{"on":true,"changed":true}` + "\n"},
	} {
		var asked []string
		cmd := newCommand(t)
		cmd.Stdin = strings.NewReader("{name: again}")
		code := cmd.run(append(strings.Fields(c.args), "--api", serveServices(t, fakeServices{asked: &asked}))...)
		if code != 0 || len(asked) != 1 || asked[0] != c.asked || cmd.out.String() != c.said {
			t.Errorf("%s: exit code %d, stderr %q\nasked %q\nwant  %q\nsaid %q, want %q", c.args, code, cmd.err.String(), asked, c.asked, cmd.out.String(), c.said)
		}
	}
}

func TestRegisterSaysWhatServicesDoNotGet(t *testing.T) {
	var asked []string
	cmd := newCommand(t)
	socket := serveServices(t, fakeServices{asked: &asked})
	code := cmd.run("register", writeFile(t, "services: [{name: web}, {namespace: ops, name: db}]"), "-o", "json", "--api", socket)
	var got struct {
		Services  []string
		Conflicts []conflictJSON
	}
	if err := json.Unmarshal([]byte(cmd.out.String()), &got); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v: %s", code, err, cmd.out.String())
	}
	if len(got.Services) != 2 || len(got.Conflicts) != 1 || got.Conflicts[0].What != "10.200.0.10:53/tcp" || got.Conflicts[0].Holder != "default/web" {
		t.Errorf("%+v", got)
	}
	if said := cmd.err.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "service ops/db does not get frontend 10.200.0.10:53/tcp: service default/web has it") {
		t.Errorf("%q", said)
	}
}

func TestRegisterSaysWhichFlagIsWrong(t *testing.T) {
	var asked []string
	socket := serveServices(t, fakeServices{asked: &asked, err: errors.New("asked")})
	const port, instance = "register web --port 80 ", "register web --port 80 --instance a --address 127.0.0.1:1 "
	for args, want := range map[string]string{
		"register":                                  `fairlead register wants the name of a service, or a file with -f`,
		"register a b":                              `fairlead register takes one service, got "a" and "b"`,
		"register a -f b":                           `fairlead register takes a name or a file, got "a" and "b"`,
		"register -f b --port 80":                   "--port has no meaning beside a file: write it into the file",
		"register a/b/c --port 80":                  `"a/b/c" names no service: want NAME or NAMESPACE/NAME`,
		"register Web --port 80":                    `NAME is "Web"; a name has 1 to 63 lower-case letters`,
		"register web":                              "--port is 0 or missing; set the service's port on its VIP",
		"register web --port 80000":                 `--port is "80000": want a whole number from 0 to 65535`,
		port + "--vip x":                            `--vip is "x"; expected an IP address`,
		port + "--balance fair":                     `--balance is "fair"; expected default, random`,
		port + "--on-empty x":                       `--on-empty is "x"; expected pass, refuse`,
		port + "--intercept 1":                      `--intercept is "1"; expected ip:port`,
		port + "--host a:1":                         `--host is "a:1"; set a host as requests name it`,
		port + "--protocol icmp":                    `--protocol is "icmp"; expected tcp, udp, both`,
		port + "--address 127.0.0.1:1":              "--address is of an instance: name it with --instance",
		port + "--check tcp,interval=1s":            "--check is of an instance: name it with --instance",
		port + "--instance a":                       `--address is ""; set the ip:port where the instance listens`,
		port + "--instance a --address web:1":       `--address is "web:1"; expected ip:port`,
		port + "--instance -a --address 1.2.3.4:5":  `--instance is "-a"; a name has 1 to 63`,
		instance + "--weight 70000":                 "--weight is 70000; set 0 to 65535",
		instance + "--check ping=x,interval=1s":     `--check ping=x,interval=1s: "ping" is unknown; want KIND=TARGET of http, tcp or grpc, then interval`,
		instance + "--check http=/,intervall=1s":    `"intervall" is unknown; did you mean interval?`,
		instance + "--check http=/":                 "--check interval is 0s or missing; set the time between two checks",
		instance + "--check interval=1s":            "--check says not what to check; set one of http, tcp and grpc",
		instance + "--check tcp,http=/,interval=1s": "--check is http and tcp at once",
		instance + "--check tcp,tcp,interval=1s":    "tcp is there twice",
		instance + "--check http,interval=1s":       "http has no value",
		instance + "--check http=x,interval=1s":     `--check http is "x"; set the path to ask for`,
		instance + "--check tcp,interval=soon":      `--check interval is "soon"; expected a duration`,
		"maintenance on --instance a":               "--instance names no instance without --service: add it",
		"deregister":                                "fairlead deregister wants the name of a service",
		"deregister a b":                            `fairlead deregister takes one argument, got "b"`,
		"deregister a --instance=":                  "--instance is empty: name an instance, or leave it out for all",
		"endpoints":                                 "fairlead endpoints wants the name of a service",
		"maintenance maybe":                         `unknown command "maybe"`,
	} {
		cmd := newCommand(t)
		code := cmd.run(append(strings.Fields(args), "--api", socket)...)
		first, _, _ := strings.Cut(cmd.err.String(), "\n")
		if code != ExitUsage || !strings.HasPrefix(first, "fairlead: ") || !strings.Contains(first, want) {
			t.Errorf("%s: exit code %d: %s\nwant %s", args, code, cmd.err.String(), want)
		}
	}
	if len(asked) != 0 {
		t.Errorf("the agent was asked %q", asked)
	}
	cmd := newCommand(t)
	if code := cmd.run("register", "-f", "/no/such.yaml", "--api", socket); code != ExitFailed || !strings.Contains(cmd.err.String(), "/no/such.yaml: no such file") {
		t.Errorf("exit code %d: %s", code, cmd.err.String())
	}
	if code := cmd.run("register", "-f", writeFile(t, strings.Repeat("#", maxFileBytes+1)), "--api", socket); code != ExitFailed || !strings.Contains(cmd.err.String(), "hardly a definition") {
		t.Errorf("exit code %d: %s", code, cmd.err.String())
	}
}
