package transfer

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/test/scale"
)

// TestAssemblerIsItsTwin drives an encoder and an assembler with random states
// of a host, over encoded messages, and compares what comes out with a twin
// that computes it from scratch.
func TestAssemblerIsItsTwin(t *testing.T) {
	for seed := range uint64(scale.N(500)) {
		w := newWorld(t, seed)
		for range 40 {
			w.step()
		}
		if t.Failed() {
			t.Fatalf("seed %d; the last steps:\n%s", seed, w.story())
		}
	}
}

// world is a host, a provider's assembler, and the twin.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	seed    uint64
	lines   []string
	limits  dataplane.Limits
	a       *Assembler
	twin    *twin
	enc     *Encoder
	session dataplane.Session
	over    []dataplane.Session

	truth    table               // what the host knows now
	accepted *dataplane.Snapshot // what the host knows to be applied
	complete dataplane.Completeness
	last     uint64 // generation given out last
	programs table  // of a provider that applies deltas only
}

func newWorld(t *testing.T, seed uint64) *world {
	rng := rand.New(rand.NewPCG(seed, 1))
	var l dataplane.Limits
	if rng.IntN(3) == 0 {
		l = dataplane.Limits{Services: rng.IntN(8), Endpoints: rng.IntN(20), EndpointsPerService: rng.IntN(6)}
	}
	w := &world{
		t: t, rng: rng, seed: seed, limits: l, a: NewAssembler(l), twin: newTwin(l), truth: table{}, programs: table{},
		session: dataplane.Session{AgentID: "agent-0", BootEpoch: 1},
	}
	w.restart()
	return w
}

// restart begins a session.
func (w *world) restart() {
	w.enc, w.accepted, w.last = NewEncoder(), nil, uint64(w.rng.IntN(3))
	w.complete = dataplane.Completeness(1 + w.rng.IntN(4))
}

func (w *world) story() string {
	out := ""
	for _, l := range w.lines[max(0, len(w.lines)-12):] {
		out += l + "\n"
	}
	return out
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Errorf("seed %d: "+format, append([]any{w.seed}, args...)...)
}

func (w *world) chance(percent int) bool { return w.rng.IntN(100) < percent }

func (w *world) step() {
	if w.t.Failed() {
		return
	}
	for range 1 + w.rng.IntN(4) {
		w.mutate()
	}
	switch {
	case w.accepted != nil && w.chance(6):
		w.newSession()
	case w.accepted != nil && w.complete == dataplane.Incomplete && w.chance(20):
		w.complete = dataplane.Exchanged
	case w.accepted != nil && w.chance(3):
		w.complete = dataplane.Incomplete
	}
	if w.accepted != nil && w.chance(30) {
		w.trespass()
	}
	w.generation()
}

func (w *world) newSession() {
	w.over = append(w.over, w.session)
	if w.chance(50) {
		w.session.BootEpoch += 1 + w.rng.Uint64N(3)
	} else { // the agent's data directory is lost
		w.session = dataplane.Session{AgentID: fmt.Sprintf("agent-%d", len(w.over)), BootEpoch: 1 + w.rng.Uint64N(3)}
	}
	w.lines = append(w.lines, fmt.Sprintf("session %v", w.session))
	w.restart()
}

// generation sends the host's truth, in a random way, and sometimes not to the
// end.
func (w *world) generation() {
	w.last += 1 + w.rng.Uint64N(3)
	edit := (&dataplane.Snapshot{}).Edit()
	for _, s := range w.truth {
		edit.Set(s)
	}
	next := edit.Done()
	next.Session, next.Generation, next.Completeness = w.session, w.last, w.complete
	next.Digest = []byte(fmt.Sprint(w.session, w.last))

	reasons := map[removalKey]dataplane.Removal{}
	delta, base := w.accepted != nil && w.chance(70), uint64(0)
	var changes []*pb.Change
	if delta {
		base = w.accepted.Generation
		d := dataplane.Diff(w.accepted, next, func(k dataplane.Key, e dataplane.Endpoint) dataplane.Removal {
			r := dataplane.Removal{Reason: dataplane.RemovalReason(w.rng.IntN(6))}
			if r.Reason == dataplane.RemovedDead {
				r.SuspectedSince = time.Unix(1_700_000_000+w.rng.Int64N(1000), 0).UTC()
			}
			reasons[removalKey{k, e.ID}] = r
			return r
		})
		changes = slices.Collect(w.enc.Delta(d))
	} else {
		changes = slices.Collect(w.enc.Snapshot(next))
	}
	if w.chance(40) {
		changes = shatter(changes)
	}
	allowEmpty := w.chance(70)
	wire := encoded(w.t, Begin(next, base, allowEmpty), slices.Values(changes))
	w.lines = append(w.lines, fmt.Sprintf("generation %d, base %d, %v, %d services", next.Generation, base, next.Completeness, next.Len()))

	if w.chance(10) { // the stream breaks
		wire.changes = wire.changes[:w.rng.IntN(len(wire.changes))]
		if _, err := wire.open(w.a); err != nil {
			w.fail("broken stream: %v", err)
		}
		w.unmoved("a stream that broke")
		return
	}
	g, err := wire.open(w.a)
	if err != nil {
		w.fail("generation %d: %v", next.Generation, err)
		return
	}
	now := w.twin.next(maps.Clone(w.truth), delta, w.complete.Complete())
	given, d, refused, err := g.Commit()
	if empty := len(w.truth) == 0 && now.kept == nil && len(w.twin.given) > 0; empty && !allowEmpty {
		if !errors.Is(err, dataplane.ErrInvalid) {
			w.fail("scale to zero without allow_empty: %v", err)
		}
		g.Accept()
		w.unmoved("a refused scale to zero")
		return
	}
	if err != nil {
		w.fail("commit: %v", err)
		return
	}
	w.check(now, given, d, refused, reasons)
	if w.chance(15) { // the provider fails
		w.unmoved("a generation that the provider did not take")
		return
	}
	g.Accept()
	w.twin, w.accepted = now, next
	w.program(d)
	if got := w.a.Applied(); got.Session != w.session || got.Generation != w.last || got.Complete != w.complete.Complete() {
		w.fail("applied is %v after generation %d of %v", got, w.last, w.session)
	}
	w.unmoved("Accept")
	w.lines = append(w.lines, fmt.Sprintf("  accepted; given %d, refused %v", given.Len(), refused))
}

// shatter makes each part of the changes a message of its own.
func shatter(changes []*pb.Change) []*pb.Change {
	var out []*pb.Change
	for _, c := range changes {
		c = objects(c)
		for _, s := range c.Services {
			out = append(out, &pb.Change{Services: []*pb.Service{s}})
		}
		for _, g := range c.Endpoints {
			for _, e := range g.Endpoints {
				out = append(out, &pb.Change{Endpoints: []*pb.EndpointGroup{{Service: g.Service, Endpoints: []*pb.Endpoint{e}}}})
			}
		}
		for _, r := range c.RemovedEndpoints {
			out = append(out, &pb.Change{RemovedEndpoints: []*pb.EndpointRemoval{r}})
		}
		for _, r := range c.RemovedServices {
			out = append(out, &pb.Change{RemovedServices: []*pb.ServiceRemoval{r}})
		}
	}
	return out
}

// check compares what Commit returned with the twin, and with what a provider
// may rely on.
func (w *world) check(now *twin, given *dataplane.Snapshot, d dataplane.Delta, refused []dataplane.ServiceStatus, reasons map[removalKey]dataplane.Removal) {
	got := tableOf(given)
	if diff := difference(got, now.given); diff != "" {
		w.fail("given is not the twin's: %s; refused %v, twin %v", diff, refused, now.refused)
	}
	if err := lawful(w.limits, got); err != nil {
		w.fail("%v", err)
	}
	keys := map[dataplane.Key]bool{}
	for _, s := range refused {
		if keys[s.Service] = true; s.Reason == "" || s.Message == "" || s.Status != dataplane.StatusRejected && s.Status != dataplane.StatusUnsupported {
			w.fail("status %v says too little", s)
		}
	}
	if !maps.Equal(keys, now.refused) {
		w.fail("refused %v, twin %v", refused, now.refused)
	}
	if !slices.IsSortedFunc(refused, func(a, b dataplane.ServiceStatus) int { return a.Service.Compare(b.Service) }) {
		w.fail("statuses are not sorted: %v", refused)
	}
	count := 0
	for s := range given.Services() {
		count += s.Endpoints.Len()
	}
	if given.Len() != len(got) || given.EndpointCount() != count {
		w.fail("snapshot counts %d services, %d endpoints; there are %d, %d", given.Len(), given.EndpointCount(), len(got), count)
	}
	// All or old, and nothing refused that would fit.
	wanted := w.wanted(now)
	for k := range keys {
		if got[k] != nil && w.twin.given[k] == nil {
			w.fail("%s is refused and given anew", k)
		}
		if w.limits == (dataplane.Limits{}) {
			without := maps.Clone(got)
			without[k] = wanted[k]
			if lawful(w.limits, without) == nil {
				w.fail("%s is refused, but fits", k)
			}
		}
	}
	if lawful(w.limits, wanted) == nil && difference(got, wanted) != "" {
		w.fail("all that is wanted fits, but %s", difference(got, wanted))
	}
	// The delta is the difference.
	want := dataplane.Diff(w.a.Given(), given, func(k dataplane.Key, e dataplane.Endpoint) dataplane.Removal {
		r, named := reasons[removalKey{k, e.ID}]
		if !named {
			return dataplane.Removal{}
		}
		return r
	})
	if fmt.Sprint(plain(d)) != fmt.Sprint(plain(want)) {
		w.fail("delta\n%v\nis not the difference\n%v", plain(d), plain(want))
	}
}

// wanted is all that the host wants, with what is kept.
func (w *world) wanted(now *twin) table {
	wanted := maps.Clone(now.kept)
	if wanted == nil {
		wanted = table{}
	}
	for k, s := range now.stated {
		if old := wanted[k]; old != nil {
			u := *s
			u.Endpoints = dataplane.NewEndpoints(append(old.Endpoints.Slice(), s.Endpoints.Slice()...)...)
			s = &u
		}
		wanted[k] = s
	}
	return wanted
}

// plain is a delta as text, with all that it says.
func plain(d dataplane.Delta) []string {
	var out []string
	for _, c := range d.Changes {
		out = append(out, fmt.Sprintf("%s old %v new %v definition %v upserted %v removed %v", c.Key(), c.Old != nil, c.New != nil, c.Definition(), c.Upserted.Slice(), c.Removed))
	}
	return out
}

// program applies a delta as a provider does that never looks at next.
func (w *world) program(d dataplane.Delta) {
	for _, c := range d.Changes {
		if c.New == nil {
			delete(w.programs, c.Key())
			continue
		}
		endpoints := map[uint64]dataplane.Endpoint{}
		if old := w.programs[c.Key()]; old != nil {
			for e := range old.Endpoints.All() {
				endpoints[e.ID] = e
			}
		}
		for _, r := range c.Removed {
			delete(endpoints, r.Endpoint.ID)
		}
		for e := range c.Upserted.All() {
			endpoints[e.ID] = e
		}
		svc := *c.New
		svc.Endpoints = dataplane.NewEndpoints(slices.Collect(maps.Values(endpoints))...)
		w.programs[c.Key()] = &svc
	}
}

// unmoved compares the assembler with the twin, which did not move.
func (w *world) unmoved(what string) {
	if diff := difference(tableOf(w.a.Given()), w.twin.given); diff != "" {
		w.fail("after %s: %s", what, diff)
	}
	if diff := difference(w.programs, w.twin.given); diff != "" {
		w.fail("after %s: applying deltas only: %s", what, diff)
	}
	if got := w.a.Statuses(); len(got) != len(w.twin.refused) {
		w.fail("after %s: refused %v, twin %v", what, got, w.twin.refused)
	}
	if w.accepted != nil && w.accepted.Session == w.session {
		if got := w.a.Applied(); got.Generation != w.accepted.Generation || got.Session != w.session {
			w.fail("after %s: applied %v, want %d", what, got, w.accepted.Generation)
		}
	}
}

// trespass begins what has to be refused, and what is unchanged.
func (w *world) trespass() {
	cur := w.accepted
	try := func(what string, want error, change func(*pb.Begin)) {
		b := Begin(cur, 0, true)
		change(b)
		if _, err := w.a.Begin(b); !errors.Is(err, want) {
			w.fail("%s: %v, want %v", what, err, want)
		}
	}
	old := []dataplane.Session{{AgentID: w.session.AgentID, BootEpoch: w.session.BootEpoch - 1}}
	for _, s := range append(old, w.over[max(0, len(w.over)-20):]...) {
		if s.BootEpoch == 0 {
			continue
		}
		try("old session", dataplane.ErrOldSession, func(b *pb.Begin) { b.Session, b.Generation = encodeSession(s), 1000 })
	}
	if cur.Generation > 1 {
		try("old generation", dataplane.ErrOldGeneration, func(b *pb.Begin) { b.Generation-- })
	}
	try("other digest", dataplane.ErrBaseMismatch, func(b *pb.Begin) { b.Digest = []byte("other") })
	try("other base", dataplane.ErrBaseMismatch, func(b *pb.Begin) { b.Generation += 2; b.Base = cur.Generation + 1 })
	try("delta in a new session", dataplane.ErrBaseMismatch, func(b *pb.Begin) { b.Session.BootEpoch++; b.Base = cur.Generation })
	try("no session", dataplane.ErrInvalid, func(b *pb.Begin) { b.Session = nil })
	try("generation 0", dataplane.ErrInvalid, func(b *pb.Begin) { b.Generation = 0 })
	try("completeness of a later version", dataplane.ErrInvalid, func(b *pb.Begin) { b.Completeness = 9 })
	wire := encoded(w.t, Begin(cur, cur.Generation*uint64(w.rng.IntN(2)), false), w.enc.Snapshot(cur))
	if g, err := wire.open(w.a); err != nil || !g.Unchanged() {
		w.fail("generation %d told again: %v", cur.Generation, err)
	} else if _, _, _, err := g.Commit(); !errors.Is(err, dataplane.ErrInvalid) {
		w.fail("unchanged and committed: %v", err)
	} else {
		g.Accept()
	}
	w.unmoved("what was refused")
}

// mutate changes something of the host's truth.
func (w *world) mutate() {
	r := w.rng
	k := dataplane.Key{Namespace: []string{"default", "b"}[r.IntN(2)], Name: string(rune('a' + r.IntN(6)))}
	if k.Namespace == "b" && k.Name == "f" {
		k.Name = "f/f" // no name of a service
	}
	s := w.truth[k]
	switch {
	case r.IntN(60) == 0:
		clear(w.truth)
	case s != nil && r.IntN(6) == 0:
		delete(w.truth, k)
	case s == nil || r.IntN(3) == 0:
		s := w.service(k)
		w.truth[k] = s
	case r.IntN(4) == 0: // a frontend moves to another service, or two swap
		for _, o := range slices.SortedFunc(maps.Keys(w.truth), dataplane.Key.Compare) {
			if o != k && r.IntN(2) == 0 {
				a, b := *s, *w.truth[o]
				a.Frontends, b.Frontends = b.Frontends, a.Frontends
				if r.IntN(2) == 0 {
					b.Frontends = nil
				}
				w.truth[k], w.truth[o] = &a, &b
				break
			}
		}
	default:
		c := *s
		list := s.Endpoints.Slice()
		if len(list) > 0 && r.IntN(3) == 0 {
			list = slices.Delete(list, 0, 1)
		} else {
			list = append(list, w.endpoint())
		}
		c.Endpoints = dataplane.NewEndpoints(list...)
		w.truth[k] = &c
	}
}

func (w *world) service(k dataplane.Key) *dataplane.Service {
	r := w.rng
	s := &dataplane.Service{Key: k, Balance: dataplane.Balance(r.IntN(5)), DrainTime: time.Duration(r.IntN(3)) * time.Second, Since: int64(r.IntN(4)) - 1}
	for range r.IntN(3) {
		s.Frontends = append(s.Frontends, w.frontend())
	}
	var list []dataplane.Endpoint
	for range r.IntN(4) {
		list = append(list, w.endpoint())
	}
	s.Endpoints = dataplane.NewEndpoints(list...)
	switch r.IntN(40) {
	case 0:
		s.Balance = 99
	case 1:
		s.Affinity = dataplane.Affinity{ByClient: true, TTL: time.Minute}
	case 2:
		s.Hosts = []string{"a.example", "b.example"}
	case 3:
		s.Routes = []dataplane.Route{{Host: "a.example", PathPrefix: "/x", Headers: map[string]string{"a": "b", "c": "d"}, Methods: []string{"GET"}}}
	case 4:
		s.DrainTime = -1
	}
	return s
}

func (w *world) frontend() dataplane.Frontend {
	r := w.rng
	f := dataplane.Frontend{Addr: address(10, 200, 0, byte(1+r.IntN(5)), 80), Protocol: dataplane.Protocol(1 + r.IntN(2)), Kind: dataplane.FrontendKind(1 + r.IntN(2)), OnEmpty: dataplane.OnEmpty(r.IntN(3))}
	switch r.IntN(50) {
	case 0:
		f.Protocol = 7
	case 1:
		f.Kind = 9
	case 2:
		f.OnEmpty = 77
	case 3:
		f.Addr = netip.AddrPort{}
	case 4:
		f.Addr = netip.MustParseAddrPort("[fd00::1]:80")
	case 5:
		f.Addr = address(224, 0, 0, 1, 80)
	}
	return f
}

func (w *world) endpoint() dataplane.Endpoint {
	r := w.rng
	e := dataplane.Endpoint{
		ID: uint64(1 + r.IntN(5)), Addr: address(10, 9, 0, byte(1+r.IntN(200)), 9000), State: dataplane.EndpointState(r.IntN(3)),
		Weight: []uint16{0, 1, 1, 1, 500}[r.IntN(5)], Zone: []string{"", "z1"}[r.IntN(2)], Name: []string{"", "web-1"}[r.IntN(2)],
	}
	if e.State == dataplane.Draining {
		e.DrainUntil = time.Unix(1_700_000_000, r.Int64N(1e9)).UTC()
	}
	switch r.IntN(25) {
	case 0:
		e.State = 9
	case 1:
		e.Addr = netip.AddrPort{}
	case 2, 3:
		e.Addr = address(10, 200, 0, byte(1+r.IntN(5)), 80) // perhaps a frontend
	case 4:
		e.AddrForeign = address(10, 200, 0, byte(1+r.IntN(5)), 80)
	case 5:
		e.AddrForeign = netip.MustParseAddrPort("[fd00::7]:9000")
	case 6:
		e.AddrForeign = netip.MustParseAddrPort("0.0.0.0:9000")
	}
	return e
}
