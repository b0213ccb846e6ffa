package api_test

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/api"
	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/core/model"
)

var web = model.ServiceKey{Namespace: "default", Name: "web"}

// catalogue answers with one service and remembers what it was asked.
type catalogue struct {
	asked []string
	err   error
}

func (c *catalogue) Services() api.ServiceList {
	return api.ServiceList{Epoch: 7, Completeness: "exchanged", Services: []api.Service{webService()}}
}

func (c *catalogue) Endpoints(key model.ServiceKey) (api.ServiceDetail, error) {
	if c.err != nil || key != web {
		return api.ServiceDetail{}, &api.Refusal{Kind: api.ErrNotFound, Err: fmt.Errorf("no node has %s", key)}
	}
	return api.ServiceDetail{
		Epoch: 8, Completeness: "alone", Service: webService(),
		Definitions: []api.Definition{{Node: "n1", NodeID: 1, Counts: true, Up: true, Registered: since, Says: "port 80/tcp", Differs: []string{"vip"}}},
		Endpoints: []api.Endpoint{
			{
				Node: "n1", NodeID: 1, Instance: "web-1", In: true, Reason: "ready", Detail: "d", Addr: "127.0.0.1:9001", AddrForeign: "10.9.0.1:19001",
				State: "passing", Since: since, Weight: 65535, Own: true,
				Checks: []api.CheckResult{
					{Kind: "http", Target: "http://127.0.0.1:9001/", Passing: true, Output: "200 OK", At: since, Successes: 3, Failures: 1},
					{Kind: "tcp", Target: "127.0.0.1:9001"},
				},
			},
			{Node: "n2", NodeID: 2, Instance: "web-1", Reason: "node-dead", State: "passing", Since: since},
		},
	}, nil
}

func webService() api.Service {
	return api.Service{
		Key: web, VIP: "10.200.0.10", Ports: []string{"80/tcp", "80/udp"}, Ready: 1, Total: 2, DefinedBy: "n1", DefinedByID: 1,
		Disagreeing: []string{"n2"}, Source: "f.yaml:3", Conflicts: []api.Conflict{
			{Kind: "host", What: "a.example", Holder: model.ServiceKey{Namespace: "ops", Name: "db"}, Node: "n2", Since: time.Unix(7, 0).UTC(), Remedy: "take it away"},
			{Kind: "frontend", What: "10.200.0.10:80/tcp", Holder: web},
		},
	}
}

func (c *catalogue) Register(name, definition string, replace bool) (api.Registration, error) {
	c.asked = append(c.asked, fmt.Sprintf("register %s %s %v", name, definition, replace))
	return api.Registration{Services: []model.ServiceKey{web}, Changed: true}, c.err
}

func (c *catalogue) Deregister(key model.ServiceKey, instance string) ([]string, error) {
	c.asked = append(c.asked, fmt.Sprintf("deregister %s %s", key, instance))
	return []string{"web-1"}, c.err
}

func (c *catalogue) Maintain(on bool, key model.ServiceKey, instance string) (bool, error) {
	c.asked = append(c.asked, fmt.Sprintf("maintain %v %s %s", on, key.Name, instance))
	return true, c.err
}

func serveCatalogue(t *testing.T, cat *catalogue, access api.Access) *client.Client {
	t.Helper()
	server := api.NewServer(api.Backend{Services: cat, Registrar: cat}, slog.New(slog.DiscardHandler))
	target := listenOn(t, server, access)
	t.Cleanup(func() { stopNow(server) })
	c, err := client.Dial(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// What goes in on one side comes out on the other, for every field.
func TestServicesArriveWhole(t *testing.T) {
	c := serveCatalogue(t, &catalogue{}, api.AccessRead)
	list, err := c.Services(t.Context())
	sentService := webService()
	wantService := client.Service{
		Key: sentService.Key, VIP: sentService.VIP, Ports: sentService.Ports, Ready: sentService.Ready, Total: sentService.Total, DefinedBy: sentService.DefinedBy,
		DefinedByID: sentService.DefinedByID, Disagreeing: sentService.Disagreeing, Source: sentService.Source,
	}
	for _, x := range sentService.Conflicts {
		wantService.Conflicts = append(wantService.Conflicts, client.Conflict{Kind: x.Kind, What: x.What, Holder: x.Holder.String(), Node: x.Node, Since: x.Since, Remedy: x.Remedy})
	}
	if want := (client.ServiceList{Epoch: 7, Completeness: "exchanged", Services: []client.Service{wantService}}); err != nil || !reflect.DeepEqual(list, want) {
		t.Errorf("Services: %v\ngot  %+v\nwant %+v", err, list, want)
	}
	d, err := c.Endpoints(t.Context(), "web")
	sent, _ := (&catalogue{}).Endpoints(web)
	want := client.ServiceDetail{Epoch: 8, Completeness: "alone", Service: wantService, Definitions: []client.Definition{client.Definition(sent.Definitions[0])}}
	for _, e := range sent.Endpoints {
		w := client.Endpoint{
			Node: e.Node, NodeID: e.NodeID, Instance: e.Instance, In: e.In, Reason: e.Reason, Detail: e.Detail, Addr: e.Addr, AddrForeign: e.AddrForeign,
			State: e.State, Since: e.Since, Weight: e.Weight, Own: e.Own,
		}
		for _, r := range e.Checks {
			w.Checks = append(w.Checks, client.CheckResult(r))
		}
		want.Endpoints = append(want.Endpoints, w)
	}
	if err != nil || !reflect.DeepEqual(d, want) {
		t.Errorf("Endpoints: %v\ngot  %+v\nwant %+v", err, d, want)
	}
}

func TestRegisteringIsForTheSocket(t *testing.T) {
	cat := &catalogue{}
	c := serveCatalogue(t, cat, api.AccessRead)
	_, err1 := c.Register(t.Context(), "f", "x", false)
	_, err2 := c.Deregister(t.Context(), "web", "")
	_, err3 := c.Maintenance(t.Context(), true, "", "")
	for _, err := range []error{err1, err2, err3} {
		if !errors.Is(err, client.ErrDenied) || !strings.Contains(err.Error(), "Unix socket only") {
			t.Errorf("over TCP: %v, want ErrDenied", err)
		}
	}
	if len(cat.asked) != 0 {
		t.Fatalf("the agent was asked %q", cat.asked)
	}
	c = serveCatalogue(t, cat, api.AccessAll)
	done, err := c.Register(t.Context(), "f", "x: 1", true)
	if err != nil || !done.Changed || !reflect.DeepEqual(done.Services, []string{"default/web"}) {
		t.Errorf("Register: %+v, %v", done, err)
	}
	if gone, err := c.Deregister(t.Context(), "ops/db", "a"); err != nil || !reflect.DeepEqual(gone, []string{"web-1"}) {
		t.Errorf("Deregister: %q, %v", gone, err)
	}
	for _, names := range [][2]string{{"web", "a"}, {}} {
		if changed, err := c.Maintenance(t.Context(), true, names[0], names[1]); err != nil || !changed {
			t.Errorf("Maintenance: %v, %v", changed, err)
		}
	}
	if want := []string{"register f x: 1 true", "deregister ops/db a", "maintain true web a", "maintain true  "}; !reflect.DeepEqual(cat.asked, want) {
		t.Errorf("the agent was asked %q, want %q", cat.asked, want)
	}
}

func TestWhatIsWrongIsTold(t *testing.T) {
	cat := &catalogue{err: &api.Refusal{Kind: api.ErrRefused, Err: errors.New("f.yaml has it")}}
	c := serveCatalogue(t, cat, api.AccessAll)
	ctx := t.Context()
	calls := map[string]func() error{
		"endpoints: no node has default/web":                                      func() error { _, err := c.Endpoints(ctx, "web"); return err },
		`endpoints: model: bad service name "a/b/c": want NAME or NAMESPACE/NAME`: func() error { _, err := c.Endpoints(ctx, "a/b/c"); return err },
		"register: f.yaml has it":                                                 func() error { _, err := c.Register(ctx, "f", "x", false); return err },
		"deregister: f.yaml has it":                                               func() error { _, err := c.Deregister(ctx, "web", ""); return err },
		`deregister: model: bad service name "": want NAME or NAMESPACE/NAME`:     func() error { _, err := c.Deregister(ctx, "", ""); return err },
		"maintenance: f.yaml has it":                                              func() error { _, err := c.Maintenance(ctx, true, "web", ""); return err },
		"maintenance: an instance is named without its service: name both":        func() error { _, err := c.Maintenance(ctx, true, "", "a"); return err },
		`maintenance: model: bad service name "a/": want NAME or NAMESPACE/NAME`:  func() error { _, err := c.Maintenance(ctx, true, "a/", ""); return err },
	}
	for want, call := range calls {
		if err := call(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	cat.err = &api.Refusal{Kind: api.ErrInvalid, Err: errors.New("bad")}
	if _, err := c.Register(ctx, "f", "x", false); err == nil || err.Error() != "register: bad" {
		t.Errorf("got %v", err)
	}
	cat.err = errors.New("disk full")
	if _, err := c.Register(ctx, "f", "x", false); err == nil || err.Error() != "register: disk full" {
		t.Errorf("got %v", err)
	}
}
