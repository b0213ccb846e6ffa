package l7

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/dataplane"
)

// watchFlows has flows arrive on a channel, from a moment later on.
func watchFlows(t *testing.T, p *Provider, o dataplane.FlowOptions, flows chan<- dataplane.Flow) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- p.Watch(ctx, &o, func(e dataplane.Event) {
			select {
			case flows <- *e.Flow:
			default:
			}
		})
	}()
	return func() error { cancel(); return <-done }
}

func TestFlowsAreToldToWhoAsks(t *testing.T) {
	p := start(t)
	at := address(backend(t, "a"))
	r := &reconciler{t, p, &dataplane.Snapshot{}}
	r.to(dataplane.Exchanged, serviceOf("web", at), serviceOf("empty"))
	front := p.front.Addresses()[0]
	flows := make(chan dataplane.Flow, 1024)
	stop := watchFlows(t, p, dataplane.FlowOptions{SampleOneIn: 1, MaxPerSecond: 1000}, flows)
	var f dataplane.Flow
	for told := false; !told; { // the first may come before the watcher
		r.status("web")
		select {
		case f = <-flows:
			told = true
		default:
		}
	}
	key := func(name string) dataplane.Key { return dataplane.Key{Namespace: "default", Name: name} }
	if f.Service != key("web") || f.Verdict != "forwarded" || f.Destination.Addr.String() != at || f.Endpoint != uint64(f.Destination.Addr.Port()) ||
		f.Frontend.Addr.String() != front || !strings.HasPrefix(f.Source.Addr.String(), "127.0.0.1:") || f.Reason != "" || f.At.IsZero() {
		t.Errorf("told of %+v", f)
	}
	for host, want := range map[string]struct {
		service dataplane.Key
		reason  string
	}{"empty": {key("empty"), "no-endpoint"}, "nobody": {dataplane.Key{}, "unknown-host"}} {
		r.status(host)
		for f = <-flows; f.Verdict == "forwarded"; f = <-flows { // that of the wait above
		}
		if f.Service != want.service || f.Verdict != "refused" || f.Reason != want.reason || f.Endpoint != 0 || f.Destination.Addr != (netip.AddrPort{}) {
			t.Errorf("of %s told %+v", host, f)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
