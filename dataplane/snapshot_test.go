package dataplane

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"
)

func TestParseKey(t *testing.T) {
	for in, want := range map[string]Key{
		"web": {"default", "web"}, "b/web": {"b", "web"}, "default/a.b-c": {"default", "a.b-c"},
		"": {}, "/": {}, "/web": {}, "b/": {}, "a/b/c": {}, "//": {},
	} {
		got, err := ParseKey(in)
		if got != want || (err == nil) != (want != Key{}) || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("ParseKey(%q) is %v, %v", in, got, err)
		}
		if err == nil {
			if again, err := ParseKey(got.String()); again != got || err != nil {
				t.Errorf("%v prints as %q, which is %v, %v", got, got, again, err)
			}
		}
	}
}

// randomTable returns services, some of which share parts.
func randomTable(r *rand.Rand) map[Key]*Service {
	m := map[Key]*Service{}
	for range r.IntN(8) {
		s := &Service{Key: Key{[]string{"a", "a-b"}[r.IntN(2)], string(rune('a' + r.IntN(4)))}, Balance: Balance(r.IntN(2)), DrainTime: time.Duration(r.IntN(2))}
		if r.IntN(2) == 0 {
			s.Frontends = []Frontend{{Addr: netip.MustParseAddrPort("10.0.0.1:80"), Protocol: Protocol(1 + r.IntN(2))}}
			s.Hosts = []string{"h"}[:r.IntN(2)]
			s.Affinity.ByClient = r.IntN(2) == 0
			s.Routes = []Route{{Host: "h", Headers: map[string]string{"a": fmt.Sprint(r.IntN(2))}}}[:r.IntN(2)]
		}
		var list []Endpoint
		for range r.IntN(5) {
			list = append(list, Endpoint{ID: uint64(1 + r.IntN(5)), Weight: uint16(r.IntN(2)), Name: string(rune('x' + r.IntN(2)))})
		}
		s.Endpoints = NewEndpoints(list...)
		m[s.Key] = s
	}
	return m
}

func snapshotOf(m map[Key]*Service) *Snapshot {
	e := (&Snapshot{}).Edit()
	for _, s := range m {
		e.Set(s)
	}
	return e.Done()
}

// definition is all of a service but its endpoints, as text.
func definition(s *Service) string {
	if s == nil {
		return ""
	}
	c := *s
	c.Endpoints = Endpoints{}
	return fmt.Sprintf("%+v", c)
}

func TestDiffIsItsTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	why := func(k Key, e Endpoint) Removal {
		return Removal{Reason: RemovalReason(1 + e.ID%5), SuspectedSince: time.Unix(int64(e.ID), int64(len(k.Name)))}
	}
	for range 3000 {
		from, to := randomTable(r), randomTable(r)
		if r.IntN(2) == 0 { // share what is not changed
			for k, s := range from {
				if r.IntN(2) == 0 {
					to[k] = s
				}
			}
		}
		reason := why
		if r.IntN(3) == 0 {
			reason = nil
		}
		var want []string
		keys := map[Key]bool{}
		for k := range from {
			keys[k] = true
		}
		for k := range to {
			keys[k] = true
		}
		sorted := make([]Key, 0, len(keys))
		for k := range keys {
			sorted = append(sorted, k)
		}
		slices.SortFunc(sorted, Key.Compare)
		for _, k := range sorted {
			text := twinOfCompare(from[k], to[k], reason)
			if text != "" {
				want = append(want, text)
			}
		}
		var got []string
		for _, c := range Diff(snapshotOf(from), snapshotOf(to), reason).Changes {
			got = append(got, describe(c))
			if c.Old != from[c.Key()] || c.New != to[c.Key()] {
				t.Fatalf("change of %v names other services", c.Key())
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("diff is\n%q\nwant\n%q", got, want)
		}
	}
}

func describe(c Change) string {
	return fmt.Sprint(c.Key(), c.Definition(), c.Upserted.Slice(), c.Removed)
}

func twinOfCompare(was, is *Service, reason func(Key, Endpoint) Removal) string {
	byID := func(s *Service) map[uint64]Endpoint {
		m := map[uint64]Endpoint{}
		if s != nil {
			for _, e := range s.Endpoints.Slice() {
				m[e.ID] = e
			}
		}
		return m
	}
	key := Key{}
	for _, s := range []*Service{was, is} {
		if s != nil {
			key = s.Key
		}
	}
	upserted, removed := []Endpoint{}, []Removal(nil)
	old, now := byID(was), byID(is)
	for id := range uint64(10) {
		o, had := old[id]
		n, has := now[id]
		switch {
		case has && (!had || o != n):
			upserted = append(upserted, n)
		case had && !has:
			r := Removal{}
			if reason != nil {
				r = reason(key, o)
			}
			r.Endpoint = o
			removed = append(removed, r)
		}
	}
	changed := definition(was) != definition(is)
	if !changed && len(upserted) == 0 && len(removed) == 0 {
		return ""
	}
	return fmt.Sprint(key, changed, upserted, removed)
}

func TestEditorLeavesOlderSnapshotsAlone(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	type version struct {
		snapshot *Snapshot
		truth    map[Key]*Service
	}
	versions := []version{{&Snapshot{}, map[Key]*Service{}}}
	for range 300 {
		from := versions[r.IntN(len(versions))]
		truth := map[Key]*Service{}
		for k, s := range from.truth {
			truth[k] = s
		}
		e := from.snapshot.Edit()
		for range r.IntN(20) {
			k := Key{"default", fmt.Sprint(r.IntN(200))}
			if r.IntN(3) == 0 {
				e.Delete(k)
				delete(truth, k)
			} else {
				s := &Service{Key: k, DrainTime: time.Duration(r.Int64()), Endpoints: NewEndpoints(Endpoint{ID: 1}, Endpoint{ID: r.Uint64N(3)})}
				e.Set(s)
				truth[k] = s
			}
			if e.Service(k) != truth[k] {
				t.Fatalf("the editor has another version of %v", k)
			}
		}
		edited := 0
		for s := range e.Services() {
			if edited++; truth[s.Key] != s {
				t.Fatalf("the editor yields another version of %v", s.Key)
			}
		}
		versions = append(versions, version{e.Done(), truth})
	}
	for i, v := range versions {
		n, endpoints := 0, 0
		var last *Service
		for s := range v.snapshot.Services() {
			if last != nil && last.Key.Compare(s.Key) >= 0 {
				t.Fatalf("version %d is not in order: %v, %v", i, last.Key, s.Key)
			}
			if v.truth[s.Key] != s || v.snapshot.Service(s.Key) != s {
				t.Fatalf("version %d has another %v", i, s.Key)
			}
			n, endpoints, last = n+1, endpoints+s.Endpoints.Len(), s
		}
		if n != len(v.truth) || v.snapshot.Len() != n || v.snapshot.EndpointCount() != endpoints {
			t.Fatalf("version %d has %d services of %d, %d endpoints of %d", i, v.snapshot.Len(), len(v.truth), v.snapshot.EndpointCount(), endpoints)
		}
		if v.snapshot.Service(Key{"default", "none"}) != nil {
			t.Fatal("a service that nobody set")
		}
	}
}

// TestReadersBesideAnEditor is of use under -race.
func TestReadersBesideAnEditor(t *testing.T) {
	e := (&Snapshot{}).Edit()
	for i := range 500 {
		e.Set(&Service{Key: Key{"default", fmt.Sprint(i)}, Endpoints: NewEndpoints(Endpoint{ID: 1, Name: "x"})})
	}
	shared := e.Done()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 20 {
				n := 0
				for s := range shared.Services() {
					n += len(s.Usable()) + shared.Service(s.Key).Endpoints.Len()
				}
				if n != 500 { // weight 0: not usable
					t.Errorf("a reader sees %d endpoints", n)
				}
			}
		})
	}
	next := shared
	for i := range 200 {
		e := next.Edit()
		e.Delete(Key{"default", fmt.Sprint(i)})
		e.Set(&Service{Key: Key{"other", fmt.Sprint(i)}})
		next = e.Done()
	}
	for range 20 { // of the shared one too, from one goroutine
		shared.Edit().Delete(Key{"default", "7"})
	}
	wg.Wait()
	if shared.Len() != 500 || next.Len() != 500 {
		t.Errorf("%d and %d services", shared.Len(), next.Len())
	}
}

func TestServicesStopEarly(t *testing.T) {
	n := 0
	for range snapshotOf(map[Key]*Service{{"a", "a"}: {Key: Key{"a", "a"}}, {"a", "b"}: {Key: Key{"a", "b"}}}).Services() {
		n++
		break
	}
	if n != 1 {
		t.Errorf("%d steps", n)
	}
	for range (&Snapshot{}).Services() {
		t.Error("a service in an empty snapshot")
	}
}

func TestFrontendRefuses(t *testing.T) {
	for _, c := range []struct {
		kind  FrontendKind
		empty OnEmpty
		want  bool
	}{
		{FrontendVIP, OnEmptyDefault, true},
		{FrontendVIP, OnEmptyRefuse, true},
		{FrontendVIP, OnEmptyPass, false},
		{FrontendIntercept, OnEmptyDefault, false},
		{FrontendIntercept, OnEmptyRefuse, true},
		{FrontendIntercept, OnEmptyPass, false},
	} {
		if got := (Frontend{Kind: c.kind, OnEmpty: c.empty}).Refuses(); got != c.want {
			t.Errorf("%v, %v: refuses is %v", c.kind, c.empty, got)
		}
	}
}

func TestForeign(t *testing.T) {
	a, b := netip.MustParseAddrPort("10.0.0.1:80"), netip.MustParseAddrPort("10.0.0.2:80")
	if got := (Endpoint{Addr: a}).Foreign(); got != a {
		t.Errorf("without a foreign address it is %v", got)
	}
	if got := (Endpoint{Addr: a, AddrForeign: b}).Foreign(); got != b {
		t.Errorf("foreign is %v", got)
	}
}

func TestCompleteness(t *testing.T) {
	for c, want := range map[Completeness]bool{0: false, Incomplete: false, Exchanged: true, Alone: true, TimedOut: true, 5: false, 255: false} {
		if c.Complete() != want {
			t.Errorf("%v is complete: %v", c, c.Complete())
		}
	}
}

func TestValuesPrint(t *testing.T) {
	for want, v := range map[string]fmt.Stringer{
		"tcp": TCP, "udp": UDP, "vip": FrontendVIP, "intercept": FrontendIntercept,
		"default": OnEmptyDefault, "refuse": OnEmptyRefuse, "pass": OnEmptyPass,
		"random": BalanceRandom, "round-robin": BalanceRoundRobin, "least-load": BalanceLeastLoad, "hash": BalanceHash,
		"ready": Ready, "suspect": Suspect, "draining": Draining,
		"incomplete": Incomplete, "exchanged": Exchanged, "alone": Alone, "timeout": TimedOut,
		"unknown": RemovedUnknown, "dead": RemovedDead, "left": RemovedLeft, "failing": RemovedFailing, "drained": RemovedDrained, "deregistered": RemovedDeregistered,
		"l4": L4, "l7": L7, "floating": Floating, "local": ScopeLocal, "forwarded": ScopeForwarded,
		"SUPPORTED": Supported, "DEGRADED": Degraded, "UNSUPPORTED": Unsupported, "INCONCLUSIVE": Inconclusive,
		"PROGRAMMED": StatusProgrammed, "PARTIAL": StatusPartial, "REJECTED": StatusRejected,
		"STARTING": HealthStarting, "READY": HealthReady, "FAILED": HealthFailed,
		"removed": Removed, "would-remove": WouldRemove, "kept": Kept, "failed": Failed,
		"unknown(200)": Protocol(200), "unknown(0)": TCP - 1, "unknown(9)": HealthState(9),
		"default/web": Key{"default", "web"},
	} {
		if v.String() != want {
			t.Errorf("%T(%d) prints as %s, want %s", v, v, v, want)
		}
	}
	for _, c := range []struct{ got, want string }{
		{BalanceDefault.String(), "default"}, {StatusUnsupported.String(), "UNSUPPORTED"}, {HealthDegraded.String(), "DEGRADED"},
	} {
		if c.got != c.want {
			t.Errorf("%s, want %s", c.got, c.want)
		}
	}
}

func TestErrorsTellThemselvesApart(t *testing.T) {
	all := []error{ErrInvalid, ErrBaseMismatch, ErrOldGeneration, ErrOldSession, ErrNotConfigured, ErrBusy, ErrLimit, ErrUnsupported, ErrFailed}
	seen := map[string]bool{}
	for i, a := range all {
		if seen[a.Error()] {
			t.Errorf("%v is there twice", a)
		}
		seen[a.Error()] = true
		for j, b := range all {
			if errors.Is(fmt.Errorf("%w: x", a), b) != (i == j) {
				t.Errorf("%v is %v", a, b)
			}
		}
	}
}
