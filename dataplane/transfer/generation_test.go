package transfer

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// script drives an assembler with hand-made messages.
type script struct {
	t *testing.T
	a *Assembler
}

func newScript(t *testing.T) *script { return &script{t, NewAssembler(dataplane.Limits{})} }

func begin(agent string, boot, base, generation uint64) *pb.Begin {
	return &pb.Begin{
		Session: &pb.Session{AgentId: agent, BootEpoch: boot}, Base: base, Generation: generation,
		Digest: fmt.Append(nil, agent[:min(3, len(agent))], boot, generation), Completeness: pb.Completeness_COMPLETENESS_EXCHANGED,
	}
}

func incomplete(b *pb.Begin) *pb.Begin {
	b.Completeness = pb.Completeness_COMPLETENESS_INCOMPLETE
	return b
}

// apply takes a generation in, up to Accept.
func (s *script) apply(b *pb.Begin, changes ...*pb.Change) (dataplane.Delta, []dataplane.ServiceStatus) {
	s.t.Helper()
	g, err := s.a.Begin(b)
	if err != nil {
		s.t.Fatalf("Begin %v: %v", b, err)
	}
	for _, c := range changes {
		if err := g.Change(c); err != nil {
			s.t.Fatalf("Change %v: %v", c, err)
		}
	}
	_, d, refused, err := g.Commit()
	if err != nil {
		s.t.Fatalf("Commit of %v: %v", b, err)
	}
	g.Accept()
	return d, refused
}

// refused begins a generation that has to fail on the way to Commit.
func (s *script) refused(want error, b *pb.Begin, changes ...*pb.Change) error {
	s.t.Helper()
	before := s.state()
	g, err := s.a.Begin(b)
	for _, c := range changes {
		if err == nil {
			err = g.Change(c)
		}
	}
	if err == nil {
		_, _, _, err = g.Commit()
		g.Accept()
	}
	if !errors.Is(err, want) {
		s.t.Errorf("%v: got %v, want %v", b, err, want)
	}
	if after := s.state(); after != before {
		s.t.Errorf("%v was refused and left\n%s\nbefore it was\n%s", b, after, before)
	}
	return err
}

// state is all that is given, as text.
func (s *script) state() string {
	var b strings.Builder
	fmt.Fprintln(&b, s.a.Applied())
	for svc := range s.a.Given().Services() {
		fmt.Fprintf(&b, "%s %v [%v]\n", svc.Key, svc.Frontends, svc.Endpoints)
	}
	return b.String() + fmt.Sprint(s.a.Statuses())
}

func (s *script) endpoints(name string) string {
	svc := s.a.Given().Service(dataplane.Key{Namespace: "default", Name: name})
	if svc == nil {
		return "no service"
	}
	var ids []string
	for e := range svc.Endpoints.All() {
		ids = append(ids, fmt.Sprint(e.ID))
	}
	return strings.Join(ids, " ")
}

func (s *script) expect(want map[string]string) {
	s.t.Helper()
	for name, endpoints := range want {
		if got := s.endpoints(name); got != endpoints {
			s.t.Errorf("%s has endpoints %q, want %q", name, got, endpoints)
		}
	}
}

func vip(n byte) *pb.Frontend {
	return &pb.Frontend{Address: AppendAddr(nil, address(10, 200, 0, n, 80)), Protocol: pb.Protocol_PROTOCOL_TCP, Kind: pb.FrontendKind_FRONTEND_KIND_VIP}
}

// define states a service with frontends and endpoints.
func define(handle uint32, name string, frontends []*pb.Frontend, ids ...uint64) *pb.Change {
	c := &pb.Change{Services: []*pb.Service{{Handle: handle, Key: &pb.ServiceKey{Namespace: "default", Name: name}, Frontends: frontends}}}
	if len(ids) > 0 {
		c.Endpoints = upsert(handle, ids...).Endpoints
	}
	return c
}

// aged says when the service of a change was registered.
func aged(since int64, c *pb.Change) *pb.Change {
	c.Services[0].SinceUnixMs = since
	return c
}

func upsert(handle uint32, ids ...uint64) *pb.Change {
	g := &pb.EndpointGroup{Service: handle}
	for _, id := range ids {
		g.Endpoints = append(g.Endpoints, &pb.Endpoint{Id: id, Address: AppendAddr(nil, address(10, 9, byte(handle), byte(id), 9000))})
	}
	return &pb.Change{Endpoints: []*pb.EndpointGroup{g}}
}

func removeEndpoint(handle uint32, id uint64) *pb.Change {
	return &pb.Change{RemovedEndpoints: []*pb.EndpointRemoval{{Service: handle, Id: id, Reason: pb.RemovalReason_REMOVAL_REASON_DEAD, SuspectedSince: timestamppb.New(time.Unix(7, 0))}}}
}

func removeService(handle uint32) *pb.Change {
	return &pb.Change{RemovedServices: []*pb.ServiceRemoval{{Service: handle}}}
}

func TestANewSessionOpensWithASnapshotAndFencesOlderOnes(t *testing.T) {
	s := newScript(t)
	s.apply(begin("a", 1, 0, 5), define(1, "web", nil, 1))
	s.refused(dataplane.ErrBaseMismatch, begin("a", 2, 5, 6))
	s.apply(begin("a", 2, 0, 1), define(1, "web", nil, 2)) // generations start anew
	s.expect(map[string]string{"web": "2"})
	s.refused(dataplane.ErrOldSession, begin("a", 1, 5, 6), upsert(1, 3))
	s.refused(dataplane.ErrOldSession, begin("a", 1, 0, 7), define(1, "web", nil, 3))

	// The agent's data directory is lost: another id takes over for good.
	s.apply(begin("b", 1, 0, 1), define(9, "web", nil, 3))
	for boot := uint64(1); boot <= 2; boot++ {
		s.refused(dataplane.ErrOldSession, begin("a", boot, 0, 100), define(1, "web", nil, 1))
	}
	s.apply(begin("b", 1, 1, 2), upsert(9, 4))
	s.expect(map[string]string{"web": "3 4"})
	// A later start of the old agent is a newer session, and fences in turn.
	s.apply(begin("a", 3, 0, 1), define(1, "web", nil, 1))
	s.refused(dataplane.ErrOldSession, begin("b", 1, 2, 3), upsert(9, 5))
	s.refused(dataplane.ErrOldSession, begin("b", 1, 0, 3), define(9, "web", nil, 5))
}

func TestTwoAgentsCannotTakeTurns(t *testing.T) {
	s := newScript(t)
	agents := make([]string, 10)
	for i := range agents {
		agents[i] = fmt.Sprint("agent-", i)
		s.apply(begin(agents[i], 1, 0, 1), define(1, "web", nil, uint64(i+1)))
	}
	for range 3 {
		for _, a := range agents[:9] {
			s.refused(dataplane.ErrOldSession, begin(a, 1, 0, 2), define(1, "web", nil, 99))
		}
	}
	if len(s.a.fenced) != 9 {
		t.Errorf("%d sessions are fenced", len(s.a.fenced))
	}
	for i := range 3 * maxFenced {
		s.apply(begin(fmt.Sprint("later-", i), 1, 0, 1), define(1, "web", nil, 1))
	}
	if len(s.a.fenced) != maxFenced {
		t.Errorf("%d sessions are remembered, %d at most", len(s.a.fenced), maxFenced)
	}
	s.refused(dataplane.ErrOldSession, begin(fmt.Sprint("later-", 2*maxFenced), 1, 0, 1)) // the newest are kept
}

func TestASessionThatIsNotAcceptedFencesNobody(t *testing.T) {
	s := newScript(t)
	s.apply(begin("a", 1, 0, 1), define(1, "web", nil, 1))
	g, err := s.a.Begin(begin("a", 2, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Change(define(1, "web", nil, 2)); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := g.Commit(); err != nil {
		t.Fatal(err)
	}
	s.apply(begin("a", 1, 1, 2), upsert(1, 3)) // the provider failed: the old one goes on
	g.Accept()                                 // comes too late
	s.expect(map[string]string{"web": "1 3"})
	if got := s.a.Applied(); got.Session.BootEpoch != 1 || got.Generation != 2 {
		t.Errorf("applied is %v", got)
	}
}

func TestUnchangedIsToldByGenerationAndDigest(t *testing.T) {
	s := newScript(t)
	s.refused(dataplane.ErrBaseMismatch, begin("a", 1, 5, 5)) // unchanged, to one who has nothing
	s.apply(begin("a", 1, 0, 5), define(1, "web", nil, 1))
	for _, base := range []uint64{0, 4, 5} {
		g, err := s.a.Begin(begin("a", 1, base, 5))
		if err != nil || !g.Unchanged() {
			t.Fatalf("base %d: %v", base, err)
		}
		if err := g.Change(removeService(77)); err != nil {
			t.Errorf("changes told again: %v", err)
		}
		g.Accept()
	}
	s.expect(map[string]string{"web": "1"})
	other := begin("a", 1, 5, 5)
	other.Digest = []byte("other")
	s.refused(dataplane.ErrBaseMismatch, other)
	if _, err := s.a.Begin(incomplete(begin("a", 1, 5, 5))); !errors.Is(err, dataplane.ErrInvalid) {
		t.Errorf("completeness is part of the generation: %v", err)
	}
	s.refused(dataplane.ErrOldGeneration, begin("a", 1, 0, 4))
	s.refused(dataplane.ErrBaseMismatch, begin("a", 1, 6, 7))
	s.refused(dataplane.ErrBaseMismatch, begin("a", 1, 4, 7))
}

func TestIncompleteSnapshotsOnlyAdd(t *testing.T) {
	s := newScript(t)
	s.apply(begin("a", 1, 0, 1), define(1, "db", nil, 1, 2), define(2, "web", nil, 1))
	s.apply(incomplete(begin("a", 2, 0, 1)), define(1, "db", nil, 2, 3), define(2, "new", nil, 1))
	s.expect(map[string]string{"db": "1 2 3", "web": "1", "new": "1"})
	// An empty one needs no flag: it takes nothing away.
	s.apply(incomplete(begin("a", 2, 0, 2)))
	s.expect(map[string]string{"db": "1 2 3", "web": "1", "new": "1"})
	s.apply(incomplete(begin("a", 2, 0, 3)), define(3, "db", nil, 2), define(4, "web", nil))
	s.apply(incomplete(begin("a", 2, 3, 4)), upsert(3, 4))
	s.expect(map[string]string{"db": "1 2 3 4", "web": "1", "new": "1"})
	// What the host removes by name it knows to be gone.
	d, _ := s.apply(incomplete(begin("a", 2, 4, 5)), removeEndpoint(3, 2))
	s.expect(map[string]string{"db": "1 3 4"})
	if r := d.Changes[0].Removed[0]; r.Endpoint.ID != 2 || r.Reason != dataplane.RemovedDead || !r.SuspectedSince.Equal(time.Unix(7, 0)) {
		t.Errorf("removed %v", r)
	}
	s.apply(incomplete(begin("a", 2, 5, 6)), removeService(4))
	s.expect(map[string]string{"db": "1 3 4", "web": "no service", "new": "1"})
	// Complete, and no word of the rest: a delta is enough.
	d, _ = s.apply(begin("a", 2, 6, 7))
	s.expect(map[string]string{"db": "4", "new": "no service"})
	if len(d.Changes) != 2 {
		t.Errorf("the purge says %v", d)
	}
	s.apply(incomplete(begin("a", 2, 7, 8)), removeEndpoint(3, 4)) // nothing is kept from before
	s.expect(map[string]string{"db": ""})
}

func TestScaleToZeroNeedsAWord(t *testing.T) {
	s := newScript(t)
	s.apply(begin("a", 1, 0, 1)) // nothing from nothing
	s.apply(begin("a", 1, 0, 2), define(1, "web", nil, 1))
	s.refused(dataplane.ErrInvalid, begin("a", 1, 0, 3))
	s.refused(dataplane.ErrInvalid, begin("a", 1, 2, 3), removeService(1))
	s.refused(dataplane.ErrInvalid, begin("a", 2, 0, 1))
	b := begin("a", 1, 2, 3)
	b.AllowEmpty = true
	s.apply(b, removeService(1))
	s.expect(map[string]string{"web": "no service"})
}

func TestBadServicesBlockNoOther(t *testing.T) {
	service := func(change func(*pb.Service)) *pb.Change {
		c := define(1, "bad", []*pb.Frontend{vip(1)}, 1)
		change(c.Services[0])
		return c
	}
	endpoint := func(change func(*pb.Endpoint)) *pb.Change {
		c := define(1, "bad", []*pb.Frontend{vip(1)}, 1, 2)
		change(c.Endpoints[0].Endpoints[1])
		return c
	}
	for name, c := range map[string]struct {
		change *pb.Change
		reason string
	}{
		"address of 5 bytes":     {service(func(s *pb.Service) { s.Frontends[0].Address = []byte{1, 2, 3, 4, 5} }), dataplane.ReasonBadFrontend},
		"address of 1 byte":      {service(func(s *pb.Service) { s.Frontends[0].Address = []byte{1} }), dataplane.ReasonBadFrontend},
		"no address":             {service(func(s *pb.Service) { s.Frontends[0].Address = nil }), dataplane.ReasonBadFrontend},
		"protocol 300":           {service(func(s *pb.Service) { s.Frontends[0].Protocol = 300 }), dataplane.ReasonUnknownValue},
		"protocol -1":            {service(func(s *pb.Service) { s.Frontends[0].Protocol = -1 }), dataplane.ReasonUnknownValue},
		"kind 257":               {service(func(s *pb.Service) { s.Frontends[0].Kind = 257 }), dataplane.ReasonUnknownValue},
		"on empty 258":           {service(func(s *pb.Service) { s.Frontends[0].OnEmpty = 258 }), dataplane.ReasonUnknownValue},
		"balance 5":              {service(func(s *pb.Service) { s.Balance = 5 }), dataplane.ReasonUnknownValue},
		"affinity 2":             {service(func(s *pb.Service) { s.Affinity = &pb.Affinity{Kind: 2} }), dataplane.ReasonUnknownValue},
		"slash":                  {service(func(s *pb.Service) { s.Key.Name = "bad/" }), dataplane.ReasonBadValue},
		"drain time":             {service(func(s *pb.Service) { s.DrainTime = durationpb.New(-1) }), dataplane.ReasonBadValue},
		"endpoint address":       {endpoint(func(e *pb.Endpoint) { e.Address = []byte{1, 2, 3} }), dataplane.ReasonBadEndpoint},
		"malformed foreign":      {endpoint(func(e *pb.Endpoint) { e.AddressForeign = []byte{1, 2, 3} }), dataplane.ReasonBadEndpoint},
		"endpoint id 0":          {endpoint(func(e *pb.Endpoint) { e.Id = 0 }), dataplane.ReasonBadEndpoint},
		"endpoint state 256":     {endpoint(func(e *pb.Endpoint) { e.State = 256 }), dataplane.ReasonUnknownValue},
		"endpoint at its own":    {endpoint(func(e *pb.Endpoint) { e.Address = vip(1).Address }), dataplane.ReasonLoop},
		"endpoint at another":    {endpoint(func(e *pb.Endpoint) { e.Address = vip(2).Address }), dataplane.ReasonLoop},
		"foreign at another":     {endpoint(func(e *pb.Endpoint) { e.AddressForeign = vip(2).Address }), dataplane.ReasonLoop},
		"frontend of another":    {service(func(s *pb.Service) { s.Frontends = append(s.Frontends, vip(2)) }), dataplane.ReasonDuplicateFrontend},
		"frontend at another's":  {service(func(s *pb.Service) { s.Frontends[0].Address = AppendAddr(nil, address(10, 9, 2, 1, 9000)) }), dataplane.ReasonLoop},
		"frontend twice in it":   {service(func(s *pb.Service) { s.Frontends = append(s.Frontends, vip(1)) }), dataplane.ReasonDuplicateFrontend},
		"an address with a port": {service(func(s *pb.Service) { s.Frontends[0].Address = []byte{1, 2, 3, 4, 0, 0} }), dataplane.ReasonBadFrontend},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			s.apply(begin("a", 1, 0, 1), define(2, "good", []*pb.Frontend{vip(2)}, 1))
			_, refused := s.apply(begin("a", 1, 1, 2), c.change, upsert(2, 1, 2))
			if len(refused) != 1 || refused[0].Reason != c.reason || !strings.HasPrefix(refused[0].Service.Name, "bad") {
				t.Errorf("refused %v, want %s", refused, c.reason)
			}
			s.expect(map[string]string{"good": "1 2", "bad": "no service", "bad/": "no service"})

			// A service that was good stays as it was, and comes back.
			s = newScript(t)
			s.apply(begin("a", 1, 0, 1), define(1, "bad", []*pb.Frontend{vip(3)}, 7), define(2, "good", []*pb.Frontend{vip(2)}, 1))
			if name == "slash" {
				return // another service
			}
			_, refused = s.apply(begin("a", 1, 1, 2), c.change, upsert(2, 1, 2))
			if len(refused) != 1 || refused[0].Reason != c.reason {
				t.Errorf("refused %v, want %s", refused, c.reason)
			}
			s.expect(map[string]string{"good": "1 2", "bad": "7"})
			_, refused = s.apply(begin("a", 1, 0, 3), define(1, "bad", []*pb.Frontend{vip(1)}, 8), define(2, "good", []*pb.Frontend{vip(2)}, 1))
			if len(refused) != 0 {
				t.Errorf("mended, but refused %v", refused)
			}
			s.expect(map[string]string{"bad": "8"})
		})
	}
}

func TestWhoGetsAFrontend(t *testing.T) {
	has := func(s *script, want string) {
		s.t.Helper()
		var got []string
		for svc := range s.a.Given().Services() {
			for _, f := range svc.Frontends {
				got = append(got, fmt.Sprintf("%s:%d", svc.Key.Name, f.Addr.Addr().As4()[3]))
			}
		}
		if strings.Join(got, " ") != want {
			s.t.Errorf("frontends are %v, want %s; refused %v", got, want, s.a.Statuses())
		}
	}
	fs := func(ns ...byte) (out []*pb.Frontend) {
		for _, n := range ns {
			out = append(out, vip(n))
		}
		return out
	}
	t.Run("of newcomers the first by key", func(t *testing.T) {
		s := newScript(t)
		s.apply(begin("a", 1, 0, 1), define(1, "b", fs(1)), define(2, "a", fs(1)))
		has(s, "a:1")
	})
	t.Run("before that, the one that was registered first", func(t *testing.T) {
		s := newScript(t)
		s.apply(begin("a", 1, 0, 1), aged(7, define(1, "a", fs(1))), aged(6, define(2, "b", fs(1))), aged(7, define(3, "c", fs(1))))
		has(s, "b:1")
		// of those that wait, too
		s.apply(begin("a", 1, 1, 2), aged(8, define(1, "a", fs(1))))
		s.apply(begin("a", 1, 2, 3), removeService(2))
		has(s, "c:1")
		// not before the incumbent
		s.apply(begin("a", 1, 3, 4), aged(-1, define(4, "d", fs(1))))
		has(s, "c:1")
	})
	t.Run("the incumbent before a key that comes earlier", func(t *testing.T) {
		s := newScript(t)
		s.apply(begin("a", 1, 0, 1), define(1, "b", fs(1)))
		s.apply(begin("a", 1, 1, 2), define(2, "a", fs(1)))
		has(s, "b:1")
		// also when it changes its other frontends in the same generation
		s.apply(begin("a", 1, 2, 3), define(1, "b", fs(1, 2)), define(2, "a", fs(1)))
		has(s, "b:1 b:2")
		// the waiting one gets it as soon as it is free, untouched itself
		s.apply(begin("a", 1, 3, 4), define(1, "b", fs(2)))
		has(s, "a:1 b:2")
	})
	t.Run("a frontend moves", func(t *testing.T) {
		s := newScript(t)
		s.apply(begin("a", 1, 0, 1), define(1, "a", fs(1)), define(2, "b", fs(2)))
		s.apply(begin("a", 1, 1, 2), define(2, "b", fs(1, 2)), define(1, "a", nil))
		has(s, "b:1 b:2")
		s.apply(begin("a", 1, 2, 3), define(2, "b", fs(2)), define(1, "a", fs(1)))
		has(s, "a:1 b:2")
	})
	t.Run("two swap", func(t *testing.T) {
		s := newScript(t)
		s.apply(begin("a", 1, 0, 1), define(1, "a", fs(1)), define(2, "b", fs(2)))
		s.apply(begin("a", 1, 1, 2), define(1, "a", fs(2)), define(2, "b", fs(1)))
		has(s, "a:2 b:1")
	})
	t.Run("who cannot move keeps what it had", func(t *testing.T) {
		s := newScript(t)
		s.apply(begin("a", 1, 0, 1), define(1, "c", fs(3)), define(2, "b", fs(1)))
		// b is to leave 1 for 3, which c keeps: it stays, and a does not get 1
		_, refused := s.apply(begin("a", 1, 1, 2), define(2, "b", fs(3)), define(3, "a", fs(1)))
		has(s, "b:1 c:3")
		if len(refused) != 2 || refused[0].Service.Name != "a" || !strings.Contains(refused[0].Message, "default/b") {
			t.Errorf("refused %v", refused)
		}
	})
	t.Run("a chain behind one who cannot", func(t *testing.T) {
		s := newScript(t)
		s.apply(begin("a", 1, 0, 1), define(1, "a", fs(1)), define(2, "b", fs(2)), define(3, "c", fs(3)), define(4, "d", fs(4)))
		s.apply(begin("a", 1, 1, 2), define(1, "a", fs(2)), define(2, "b", fs(3)), define(3, "c", fs(4)))
		has(s, "a:1 b:2 c:3 d:4")
		s.apply(begin("a", 1, 2, 3), removeService(4))
		has(s, "a:2 b:3 c:4")
	})
	t.Run("a removed service blocks nobody", func(t *testing.T) {
		s := newScript(t)
		s.apply(begin("a", 1, 0, 1), define(1, "z", fs(1)))
		s.apply(begin("a", 1, 1, 2), removeService(1), define(2, "a", fs(1)))
		has(s, "a:1")
		s.apply(begin("a", 1, 2, 3), define(3, "a2", fs(9), 1))
	})
	t.Run("with what an incomplete snapshot keeps", func(t *testing.T) {
		s := newScript(t)
		s.apply(begin("a", 1, 0, 1), define(1, "old", fs(1)))
		s.apply(incomplete(begin("a", 2, 0, 1)), define(1, "new", fs(1)))
		has(s, "old:1")
		s.apply(begin("a", 2, 1, 2))
		has(s, "new:1")
	})
}

func TestLoopsBetweenServices(t *testing.T) {
	at := func(handle uint32, id uint64, a netip.AddrPort) *pb.Change {
		c := upsert(handle, id)
		c.Endpoints[0].Endpoints[0].Address = AppendAddr(nil, a)
		return c
	}
	front := func(p pb.Protocol) []*pb.Frontend {
		f := vip(5)
		f.Protocol = p
		return []*pb.Frontend{f}
	}
	five := address(10, 200, 0, 5, 80)
	tcp, udp := pb.Protocol_PROTOCOL_TCP, pb.Protocol_PROTOCOL_UDP
	for _, c := range []struct {
		name    string
		first   []*pb.Change // generation 1
		then    []*pb.Change // generation 2
		refused string
	}{
		{"endpoint comes to a frontend", []*pb.Change{define(1, "b", front(tcp)), define(2, "a", []*pb.Frontend{vip(1)}, 1)}, []*pb.Change{at(2, 2, five)}, "a"},
		{"frontend comes to an endpoint", []*pb.Change{define(2, "b", []*pb.Frontend{vip(1)}), at(2, 2, five)}, []*pb.Change{define(1, "a", front(tcp))}, "a"},
		{"both at once", nil, []*pb.Change{define(1, "b", front(tcp)), define(2, "a", []*pb.Frontend{vip(1)}), at(2, 2, five)}, "b"},
		{"both at once, the other way", nil, []*pb.Change{define(1, "a", front(tcp)), define(2, "b", []*pb.Frontend{vip(1)}), at(2, 2, five)}, "b"},
		{"both at once, the endpoint later", nil, []*pb.Change{aged(1, define(1, "b", front(tcp))), aged(2, define(2, "a", []*pb.Frontend{vip(1)})), at(2, 2, five)}, "a"},
		{"another protocol", nil, []*pb.Change{define(1, "b", front(udp)), define(2, "a", []*pb.Frontend{vip(1)}), at(2, 2, five)}, ""},
		{"endpoints of a proxied service take TCP", nil, []*pb.Change{define(1, "b", front(tcp)), define(2, "a", nil), at(2, 2, five)}, "b"},
		{"and no UDP", nil, []*pb.Change{define(1, "b", front(udp)), define(2, "a", nil), at(2, 2, five)}, ""},
		{"the endpoint leaves as the frontend comes", []*pb.Change{define(2, "b", []*pb.Frontend{vip(1)}), at(2, 2, five)}, []*pb.Change{define(1, "a", front(tcp)), removeEndpoint(2, 2)}, ""},
		{"the frontend leaves as the endpoint comes", []*pb.Change{define(1, "b", front(tcp)), define(2, "a", []*pb.Frontend{vip(1)})}, []*pb.Change{define(1, "b", nil), at(2, 2, five)}, ""},
		{"a frontend moves to where its endpoint was", []*pb.Change{define(2, "a", []*pb.Frontend{vip(1)}), at(2, 2, five)}, []*pb.Change{define(2, "a", front(tcp)), at(2, 2, address(10, 9, 0, 1, 80))}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t)
			s.apply(begin("a", 1, 0, 1), c.first...)
			_, refused := s.apply(begin("a", 1, 1, 2), c.then...)
			got := ""
			for _, r := range refused {
				got += r.Service.Name
				if r.Reason != dataplane.ReasonLoop || !strings.Contains(r.Message, "circle") {
					t.Errorf("refused %v", r)
				}
			}
			if got != c.refused {
				t.Errorf("refused %v, want %q", refused, c.refused)
			}
		})
	}
}

func TestLimitsRefuseServicesAndNotTheGeneration(t *testing.T) {
	s := &script{t, NewAssembler(dataplane.Limits{Services: 3, Endpoints: 6, EndpointsPerService: 4})}
	_, refused := s.apply(begin("a", 1, 0, 1), define(1, "d", nil, 1), define(2, "a", nil, 1), define(3, "c", nil, 1), define(4, "b", nil, 1))
	names := func() (out string) {
		for _, r := range refused {
			out += r.Service.Name
			if r.Reason != dataplane.ReasonLimit || r.Status != dataplane.StatusRejected {
				t.Errorf("refused %v", r)
			}
		}
		return out
	}
	if names() != "d" {
		t.Errorf("of four services, with room for three, %v", refused)
	}
	_, refused = s.apply(begin("a", 1, 1, 2), upsert(2, 1, 2, 3, 4, 5)) // too many for one
	if names() != "ad" {
		t.Errorf("refused %v", refused)
	}
	_, refused = s.apply(begin("a", 1, 2, 3), removeEndpoint(2, 5), upsert(3, 1, 2)) // a 4, b 1, c 2: one too many
	if names() != "cd" {
		t.Errorf("refused %v", refused)
	}
	s.expect(map[string]string{"a": "1 2 3 4", "b": "1", "c": "1"})
	_, refused = s.apply(begin("a", 1, 3, 4), removeService(4)) // b goes: room for the others
	if names() != "d" {
		t.Errorf("refused %v", refused)
	}
	s.expect(map[string]string{"a": "1 2 3 4", "c": "1 2"})
}

func TestStrayPartsEndAGeneration(t *testing.T) {
	s := newScript(t)
	unnamed := define(2, "", nil)
	long := begin("a", 1, 0, 1)
	long.Digest = make([]byte, 65)
	s.refused(dataplane.ErrInvalid, long)
	s.refused(dataplane.ErrInvalid, begin(strings.Repeat("a", 65), 1, 0, 1))
	s.refused(dataplane.ErrInvalid, begin("a", 1, 0, 1), unnamed)
	s.refused(dataplane.ErrInvalid, begin("a", 1, 0, 1), define(0, "web", nil))
	s.refused(dataplane.ErrInvalid, begin("a", 1, 0, 1), upsert(1, 1))
	s.refused(dataplane.ErrInvalid, begin("a", 1, 0, 1), removeService(1))
	s.refused(dataplane.ErrInvalid, begin("a", 1, 0, 1), define(1, "web", nil, 1), define(2, "web", nil, 2))
	s.refused(dataplane.ErrInvalid, begin("a", 1, 0, 1), define(1, "web", nil, 1), define(1, "db", nil, 2))
	s.refused(dataplane.ErrInvalid, begin("a", 1, 0, 1), define(1, "web", nil, 1), removeService(1), upsert(1, 2))
	s.apply(begin("a", 1, 0, 1), define(1, "web", nil, 1), define(2, "db", nil, 1))
	// In a delta the sides differ in what the base is: a snapshot mends it.
	s.refused(dataplane.ErrBaseMismatch, begin("a", 1, 1, 2), upsert(3, 1))
	s.refused(dataplane.ErrBaseMismatch, begin("a", 1, 1, 2), removeEndpoint(1, 2))
	s.refused(dataplane.ErrBaseMismatch, begin("a", 1, 1, 2), removeEndpoint(3, 2))
	s.refused(dataplane.ErrBaseMismatch, begin("a", 1, 1, 2), removeService(3))
	s.refused(dataplane.ErrBaseMismatch, begin("a", 1, 1, 2), removeService(1), upsert(1, 2))
	s.refused(dataplane.ErrBaseMismatch, begin("a", 1, 1, 2), define(3, "web", nil, 2))
	s.refused(dataplane.ErrInvalid, begin("a", 1, 1, 2), define(1, "db", nil, 2))
	// A service may go and come within one generation, and endpoints too.
	s.apply(begin("a", 1, 1, 2), removeService(1), define(4, "web", nil, 5), removeEndpoint(2, 1), upsert(2, 1))
	s.expect(map[string]string{"web": "5", "db": "1"})
	s.apply(begin("a", 1, 2, 3), upsert(4, 6))
	s.refused(dataplane.ErrBaseMismatch, begin("a", 1, 3, 4), upsert(1, 6))
	s.expect(map[string]string{"web": "5 6"})
}

func TestAGenerationIsCommittedOnce(t *testing.T) {
	s := newScript(t)
	g, err := s.a.Begin(begin("a", 1, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	g.Accept() // before Commit: nothing
	if s.a.Applied().Generation != 0 {
		t.Error("accepted without Commit")
	}
	if _, _, _, err := g.Commit(); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := g.Commit(); !errors.Is(err, dataplane.ErrInvalid) {
		t.Errorf("second Commit: %v", err)
	}
	g.Accept()
	g.Accept()
	if s.a.Applied().Generation != 1 {
		t.Error("not accepted")
	}
}

func TestAnEndpointWithoutAddressSaysItsState(t *testing.T) {
	s := newScript(t)
	whole := define(1, "web", nil, 1, 2)
	e := whole.Endpoints[0].Endpoints[0]
	weight := uint32(7)
	e.Zone, e.Name, e.Weight, e.AddressForeign = "z", "web-1", &weight, AppendAddr(nil, address(10, 9, 7, 7, 9001))
	s.apply(begin("a", 1, 0, 1), whole)
	until := time.Unix(1_700_000_000, 5).UTC()
	state := func(id uint64, e pb.EndpointState, drain *timestamppb.Timestamp) *pb.Change {
		return &pb.Change{Endpoints: []*pb.EndpointGroup{{Service: 1, Endpoints: []*pb.Endpoint{{Id: id, State: e, DrainUntil: drain}}}}}
	}
	get := func() dataplane.Endpoint {
		e, _ := s.a.Given().Service(dataplane.Key{Namespace: "default", Name: "web"}).Endpoints.Get(1)
		return e
	}
	want := get()
	want.State, want.DrainUntil = dataplane.Draining, until
	s.apply(begin("a", 1, 1, 2), state(1, pb.EndpointState_ENDPOINT_STATE_DRAINING, timestamppb.New(until)))
	if got := get(); !got.Equal(want) {
		t.Errorf("draining it is %+v, want %+v", got, want)
	}
	want.State, want.DrainUntil = dataplane.Ready, time.Time{}
	s.apply(begin("a", 1, 2, 3), state(1, pb.EndpointState_ENDPOINT_STATE_READY, nil))
	if got := get(); !got.Equal(want) {
		t.Errorf("ready again it is %+v, want %+v", got, want)
	}
	_, refused := s.apply(begin("a", 1, 3, 4), state(3, pb.EndpointState_ENDPOINT_STATE_READY, nil))
	if len(refused) != 1 || refused[0].Reason != dataplane.ReasonBadEndpoint {
		t.Errorf("one that is not known: refused %v", refused)
	}
	s.expect(map[string]string{"web": "1 2"})
}

func TestRemovalsSayWhy(t *testing.T) {
	s := newScript(t)
	s.apply(begin("a", 1, 0, 1), define(1, "web", nil, 1, 2, 3, 4), define(2, "db", nil, 1, 2))
	strange := removeEndpoint(1, 2)
	strange.RemovedEndpoints[0].Reason = 99 // of a later version
	d, _ := s.apply(begin("a", 1, 1, 2), removeEndpoint(1, 1), strange, removeEndpoint(1, 3), upsert(1, 3), removeEndpoint(2, 1), removeService(2))
	var got []string
	for _, c := range d.Changes {
		for _, r := range c.Removed {
			got = append(got, fmt.Sprintf("%s/%d %v %d", c.Key().Name, r.Endpoint.ID, r.Reason, max(0, r.SuspectedSince.Unix())))
		}
	}
	if want := []string{"db/1 dead 7", "db/2 unknown 0", "web/1 dead 7", "web/2 unknown 7"}; !slices.Equal(got, want) {
		t.Errorf("removed %q, want %q", got, want)
	}
	d, _ = s.apply(begin("a", 1, 0, 3), define(1, "web", nil, 4))
	if r := d.Changes[0].Removed; len(r) != 1 || r[0].Reason != dataplane.RemovedUnknown {
		t.Errorf("a snapshot that lacks an endpoint says %v", r)
	}
}

func TestResumeAndForget(t *testing.T) {
	s := newScript(t)
	digest := []byte(fmt.Sprint("a", 3, 7))
	s.a.Resume(Applied{Session: dataplane.Session{AgentID: "a", BootEpoch: 3}, Generation: 7, Digest: digest, Complete: true})
	digest[0]++ // the caller's
	if !s.a.Resumed() {
		t.Error("not resumed")
	}
	if g, err := s.a.Begin(begin("a", 3, 7, 7)); err != nil || !g.Unchanged() {
		t.Errorf("unchanged since the former process: %v", err)
	}
	s.refused(dataplane.ErrOldSession, begin("a", 2, 0, 9))
	s.refused(dataplane.ErrOldGeneration, begin("a", 3, 0, 6))
	s.refused(dataplane.ErrBaseMismatch, begin("a", 3, 7, 8), upsert(1, 1))
	s.refused(dataplane.ErrInvalid, begin("a", 3, 0, 8)) // would remove what is not even known
	s.apply(begin("a", 3, 0, 8), define(1, "web", nil, 1))
	if s.a.Resumed() {
		t.Error("still resumed")
	}
	s.apply(begin("b", 1, 0, 1), define(1, "web", nil, 1))
	s.a.Forget()
	if s.a.Given().Len() != 0 || s.a.Applied().Generation != 0 {
		t.Errorf("after Forget: %s", s.state())
	}
	s.refused(dataplane.ErrOldSession, begin("a", 3, 0, 9))
	s.refused(dataplane.ErrBaseMismatch, begin("b", 1, 1, 2))
	s.apply(begin("b", 1, 0, 1), define(1, "web", nil, 1))
}
