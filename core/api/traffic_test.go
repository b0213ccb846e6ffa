package api_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/api"
	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/core/model"
)

// road is a backend of flows and counters.
type road struct {
	asked []string
	err   error // that Observe ends with; nil: it waits
}

var (
	sentFlow = api.Flow{
		At: since, Provider: "ebpf", Service: model.ServiceKey{Namespace: "ops", Name: "db"}, EndpointID: 1, Instance: "db-1", Node: "n2", Protocol: "tcp",
		Source: netip.MustParseAddrPort("10.0.0.1:1"), Frontend: netip.MustParseAddrPort("10.200.0.1:2"), Destination: netip.MustParseAddrPort("[fd00::1]:3"),
		Verdict: "forwarded", Reason: "why", PID: 4, Process: "curl", Cgroup: "/a", CgroupID: 5,
	}
	sentCounter = api.Counter{Provider: "l7", Service: model.ServiceKey{Namespace: "default", Name: "web"}, EndpointID: 6, Instance: "web-1", Node: "n1", Name: "requests", Value: 7}
)

func (r *road) Observe(ctx context.Context, filter api.FlowFilter) iter.Seq2[api.Observed, error] {
	return func(yield func(api.Observed, error) bool) {
		r.asked = append(r.asked, fmt.Sprintf("observe %v %s %d %d", filter.Service, filter.Verdict, filter.OneIn, filter.Rate))
		items := []api.Observed{
			{Began: &[]string{"ebpf", "l7"}}, {Flow: &sentFlow}, {Flow: &api.Flow{At: since}}, {Lost: &api.LostFlows{Slow: 1, OverRate: 2, Provider: 3}},
		}
		for _, item := range items {
			if !yield(item, nil) {
				return
			}
		}
		if r.err != nil {
			yield(api.Observed{}, r.err)
			return
		}
		<-ctx.Done()
		yield(api.Observed{}, ctx.Err())
	}
}

func (r *road) Counters(_ context.Context, key model.ServiceKey) (api.Counters, error) {
	r.asked = append(r.asked, fmt.Sprintf("counters %v", key))
	return api.Counters{Counters: []api.Counter{sentCounter, {Provider: "l7", Name: "all"}}, Problems: []api.CounterProblem{{Provider: "ebpf", Error: "gone"}}}, r.err
}

func serveRoad(t *testing.T, r *road, access api.Access) (*client.Client, *api.Server) {
	t.Helper()
	server := api.NewServer(api.Backend{Traffic: r}, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { stopNow(server) })
	c, err := client.Dial(t.Context(), listenOn(t, server, access))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, server
}

func TestFlowsAndCountersArriveWhole(t *testing.T) {
	r := &road{}
	c, server := serveRoad(t, r, api.AccessAll)
	var got []client.Observed
	for item, err := range c.Observe(t.Context(), client.FlowFilter{Service: "ops/db", Verdict: "forwarded", OneIn: 8, Rate: 9}) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, item); len(got) == 4 {
			break
		}
	}
	want := []client.Observed{
		{Began: &client.Began{Providers: []string{"ebpf", "l7"}}},
		{Flow: &client.Flow{
			At: since, Provider: "ebpf", Service: "ops/db", EndpointID: 1, Instance: "db-1", Node: "n2", Protocol: "tcp",
			Source: "10.0.0.1:1", Frontend: "10.200.0.1:2", Destination: "[fd00::1]:3",
			Verdict: "forwarded", Reason: "why", PID: 4, Process: "curl", Cgroup: "/a", CgroupID: 5,
		}},
		{Flow: &client.Flow{At: since}},
		{Lost: &client.LostFlows{Slow: 1, OverRate: 2, Provider: 3}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Observe:\ngot  %+v\nwant %+v", got, want)
	}
	counters, err := c.Counters(t.Context(), "web")
	if want := (client.Counters{
		Counters: []client.Counter{{Provider: "l7", Service: "default/web", EndpointID: 6, Instance: "web-1", Node: "n1", Name: "requests", Value: 7}, {Provider: "l7", Name: "all"}},
		Problems: []client.CounterProblem{{Provider: "ebpf", Error: "gone"}},
	}); err != nil || !reflect.DeepEqual(counters, want) {
		t.Errorf("Counters: %v\ngot  %+v\nwant %+v", err, counters, want)
	}
	if _, err := c.Counters(t.Context(), ""); err != nil {
		t.Error(err)
	}
	if want := []string{"observe ops/db forwarded 8 9", "counters default/web", "counters /"}; !reflect.DeepEqual(r.asked, want) {
		t.Errorf("asked %q, want %q", r.asked, want)
	}
	// A server that stops ends who observes.
	err = nil
	for item, end := range c.Observe(t.Context(), client.FlowFilter{}) {
		if err = end; item.Lost != nil {
			go server.Stop(t.Context())
		}
	}
	if !errors.Is(err, client.ErrStopped) {
		t.Errorf("the end: %v", err)
	}
}

func TestObserveTellsWhyNot(t *testing.T) {
	for want, kind := range map[string]error{
		"observe: no such thing": &api.Refusal{Kind: api.ErrNotFound, Err: errors.New("no such thing")},
		"observe: so many":       &api.Refusal{Kind: api.ErrTooMany, Err: errors.New("so many")},
		"observe: broken":        errors.New("broken"),
	} {
		c, _ := serveRoad(t, &road{err: kind}, api.AccessAll)
		var last error
		for _, err := range c.Observe(t.Context(), client.FlowFilter{}) {
			last = err
		}
		if last == nil || last.Error() != want {
			t.Errorf("got %v, want %s", last, want)
		}
	}
	r := &road{}
	c, _ := serveRoad(t, r, api.AccessAll)
	for _, err := range c.Observe(t.Context(), client.FlowFilter{Service: "a/b/c"}) {
		if err == nil || !strings.Contains(err.Error(), "bad service name") {
			t.Errorf("got %v", err)
		}
	}
	c, _ = serveRoad(t, r, api.AccessRead)
	for _, err := range c.Observe(t.Context(), client.FlowFilter{}) {
		if !errors.Is(err, client.ErrDenied) {
			t.Errorf("Observe over TCP: %v", err)
		}
	}
	if _, err := c.Counters(t.Context(), ""); !errors.Is(err, client.ErrDenied) {
		t.Errorf("Counters over TCP: %v", err)
	}
	if len(r.asked) != 0 {
		t.Errorf("the agent was asked %q", r.asked)
	}
}
