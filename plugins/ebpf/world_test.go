package ebpf

import (
	"encoding/json"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/test/netns"
)

// world is a provider in this process, in the cgroup of the tests.
type world struct {
	t        testing.TB
	provider *Provider
	config   dataplane.Config
	now      *dataplane.Snapshot
}

// newWorld configures a provider; what it leaves is removed with the test.
func newWorld(t testing.TB, edits ...func(*settings)) *world {
	t.Helper()
	s := settings{Cgroup: netns.Isolated(t)}
	for _, edit := range edits {
		edit(&s)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, provider: New("test"), config: dataplane.Config{JSON: text, InstanceID: "test." + t.Name()}, now: &dataplane.Snapshot{}}
	w.provider.UseLogger(slog.New(slog.NewTextHandler(t.Output(), nil)))
	w.configure()
	t.Cleanup(func() {
		if err := w.provider.Shutdown(t.Context(), dataplane.ShutdownRemove); err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *world) configure() {
	w.t.Helper()
	if _, err := w.provider.Configure(w.t.Context(), w.config); err != nil {
		w.t.Fatal(err)
	}
}

// apply makes the world just these services, as a delta to what was there.
func (w *world) apply(services ...*dataplane.Service) dataplane.Result {
	w.t.Helper()
	return w.applyFor(nil, services...)
}

// applyFor says why endpoints are removed.
func (w *world) applyFor(reason func(dataplane.Key, dataplane.Endpoint) dataplane.Removal, services ...*dataplane.Service) dataplane.Result {
	w.t.Helper()
	e := (&dataplane.Snapshot{}).Edit()
	for _, svc := range services {
		if p := svc.Check(); p != nil {
			w.t.Fatalf("%s: %s", svc.Key, p.Message)
		}
		if old := w.now.Service(svc.Key); old != nil {
			if _, changed := dataplane.Compare(old, svc, nil); !changed {
				svc = old
			}
		}
		e.Set(svc)
	}
	next := e.Done()
	next.Session = dataplane.Session{AgentID: "test", BootEpoch: 1}
	next.Generation, next.Digest, next.Completeness = w.now.Generation+1, []byte("digest"), dataplane.Exchanged
	r, err := w.provider.Reconcile(w.t.Context(), next, dataplane.Diff(w.now, next, reason))
	if err != nil {
		w.t.Fatal(err)
	}
	w.now = next
	return r
}

// good fails the test if a result names a service.
func (w *world) good(r dataplane.Result) {
	w.t.Helper()
	for _, st := range r.Statuses {
		w.t.Fatalf("%s is %v, %s: %s", st.Service, st.Status, st.Reason, st.Message)
	}
}

func name(s string) dataplane.Key { return dataplane.Key{Namespace: "test", Name: s} }

// service makes a service; endpoint n has id n+1.
func service(key string, frontends []dataplane.Frontend, addrs ...netip.AddrPort) *dataplane.Service {
	var list []dataplane.Endpoint
	for i, a := range addrs {
		list = append(list, dataplane.Endpoint{ID: uint64(i + 1), Addr: a, Weight: 1})
	}
	return &dataplane.Service{Key: name(key), Frontends: frontends, Endpoints: dataplane.NewEndpoints(list...), DrainTime: time.Hour}
}

func vip(addr string, p dataplane.Protocol) []dataplane.Frontend {
	return []dataplane.Frontend{{Addr: netip.MustParseAddrPort(addr), Protocol: p, Kind: dataplane.FrontendVIP}}
}

func intercept(addr string, p dataplane.Protocol) []dataplane.Frontend {
	return []dataplane.Frontend{{Addr: netip.MustParseAddrPort(addr), Protocol: p, Kind: dataplane.FrontendIntercept}}
}
