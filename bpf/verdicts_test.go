package bpf

import (
	"maps"
	"math"
	"net/netip"
	"slices"
	"syscall"
	"testing"
)

const (
	tcp = FakeTransportTRANSPORT_TCP
	udp = FakeTransportTRANSPORT_UDP
)

// TestVerdicts: every reason there is to pass, lead or refuse, for IPv4, IPv6 and
// IPv4 by an IPv6 socket, each counted once and nothing beside it.
func TestVerdicts(t *testing.T) {
	const published, refuses = FakePublicationFlagPUBLISHED, FakePublicationFlagREFUSES
	other := map[string]any{FakeVarHasRetval: false}
	policy := map[string]any{FakeVarPolicyInForce: true}
	tests := []struct {
		name      string
		constants map[string]any
		change    func(*lab, form)
		send      bool // of a datagram, else connect
		protocol  FakeTransport
		reason    FakeReason
		errno     syscall.Errno // 0: it is passed
	}{
		{name: "forwarded", reason: FakeReasonFORWARDED},
		{name: "forwarded datagram", send: true, reason: FakeReasonFORWARDED},
		{name: "forwarded connected datagrams", protocol: udp, reason: FakeReasonFORWARDED},
		{name: "forwarded MPTCP", protocol: FakeTransportTRANSPORT_MPTCP, reason: FakeReasonFORWARDED},
		{
			name: "no_frontend", reason: FakeReasonNO_FRONTEND,
			change: func(l *lab, f form) { l.unleads(f, tcp) },
		},
		{
			name: "no_frontend of the other transport", send: true, reason: FakeReasonNO_FRONTEND,
			change: func(l *lab, f form) { l.unleads(f, udp) },
		},
		{name: "other_protocol", protocol: syscall.IPPROTO_SCTP, reason: FakeReasonOTHER_PROTOCOL},
		{name: "other_protocol datagram", send: true, protocol: syscall.IPPROTO_ICMP, reason: FakeReasonOTHER_PROTOCOL},
		{
			name: "withdrawn", reason: FakeReasonWITHDRAWN,
			change: func(l *lab, _ form) { l.publishes(FakeScopeSCOPE_HOME, 0, 0, 0) },
		},
		{
			name: "withdrawn datagram", send: true, reason: FakeReasonWITHDRAWN,
			change: func(l *lab, _ form) { l.publishes(FakeScopeSCOPE_HOME, 0, 0, 0) },
		},
		{
			name: "empty_passed", reason: FakeReasonEMPTY_PASSED,
			change: func(l *lab, _ form) { l.publishes(FakeScopeSCOPE_HOME, set, 0, published) },
		},
		{
			name: "empty_refused", reason: FakeReasonEMPTY_REFUSED, errno: syscall.ECONNREFUSED,
			change: func(l *lab, _ form) { l.publishes(FakeScopeSCOPE_HOME, set, 0, published|refuses) },
		},
		{
			name: "empty_refused datagram", send: true, reason: FakeReasonEMPTY_REFUSED, errno: syscall.ECONNREFUSED,
			change: func(l *lab, _ form) { l.publishes(FakeScopeSCOPE_HOME, set, 0, published|refuses) },
		},
		{
			name: "refused where no errno can be chosen", constants: other, reason: FakeReasonEMPTY_REFUSED, errno: noErrno,
			change: func(l *lab, _ form) { l.publishes(FakeScopeSCOPE_HOME, set, 0, published|refuses) },
		},
		{
			name: "denied", constants: policy, reason: FakeReasonDENIED, errno: syscall.EPERM,
			change: func(l *lab, _ form) { l.denies(cgroup, service) },
		},
		{
			name: "denied datagram", constants: policy, send: true, reason: FakeReasonDENIED, errno: syscall.EPERM,
			change: func(l *lab, _ form) { l.denies(cgroup, service) },
		},
		{
			name: "denied before it is known to be empty", constants: policy, reason: FakeReasonDENIED, errno: syscall.EPERM,
			change: func(l *lab, _ form) {
				l.denies(cgroup, service)
				l.publishes(FakeScopeSCOPE_HOME, set, 0, published|refuses)
			},
		},
		{
			name: "denied to another cgroup, and another service to this one", constants: policy, reason: FakeReasonFORWARDED,
			change: func(l *lab, _ form) { l.denies(cgroup+1, service); l.denies(cgroup, service+1) },
		},
		{
			name: "denied, but no policy is in force", reason: FakeReasonFORWARDED,
			change: func(l *lab, _ form) { l.denies(cgroup, service) },
		},
		{
			name: "no_memory", send: true, reason: FakeReasonNO_MEMORY, errno: syscall.ENOMEM,
			change: func(l *lab, _ form) { l.NoStorage = 1 },
		},
		{
			name: "untracked", reason: FakeReasonUNTRACKED,
			change: func(l *lab, _ form) { l.NoStorage = 1 },
		},
		{
			name: "broken: no such set", reason: FakeReasonBROKEN, errno: syscall.ECONNREFUSED,
			change: func(l *lab, _ form) { l.publishes(FakeScopeSCOPE_HOME, room, 3, published) },
		},
		{
			name: "broken: no such slot", reason: FakeReasonBROKEN, errno: syscall.ECONNREFUSED,
			change: func(l *lab, _ form) { l.publishes(FakeScopeSCOPE_HOME, room-1, 3, published) },
		},
	}
	for _, f := range forms() {
		for _, test := range tests {
			t.Run(f.name+"/"+test.name, func(t *testing.T) {
				l := f.ready(t, test.constants)
				l.Random, l.Cookie = math.MaxUint32/2, 2 // the second slot
				if test.change != nil {
					test.change(l, f)
				}
				program, protocol := f.connect, test.protocol
				if protocol == 0 {
					protocol = tcp
				}
				if test.send {
					if program = f.send; test.protocol == 0 {
						protocol = udp
					}
				}
				got := l.run(program, protocol, f.frontend)
				led := test.reason == FakeReasonFORWARDED || test.reason == FakeReasonUNTRACKED
				want := outcome{passed: test.errno == 0, errno: test.errno, to: f.frontend, counted: map[FakeReason]int{test.reason: 1}}
				if want.errno == noErrno {
					want.errno = 0
				}
				if led {
					want.to = f.endpoints[l.chosen(f)]
				}
				if !got.equal(want) {
					t.Errorf("%+v, want %+v", got, want)
				}
				l.remembers(f, test.reason == FakeReasonFORWARDED, test.send, got.to)
				var counts [FakeServiceCountSERVICE_COUNTS]uint64
				if what, is := ofServices[test.reason]; is {
					counts[what] = 1
				}
				if got := l.counts(); got != counts {
					t.Errorf("of the service %v is counted, want %v", got, counts)
				}
				if sum := l.hits(f.six(), 0) + l.hits(f.six(), 1) + l.hits(f.six(), 2); (sum == 1) != led || sum > 1 {
					t.Errorf("%d hits", sum)
				}
			})
		}
	}
}

// ofServices are the reasons that are counted of the service as well.
var ofServices = map[FakeReason]FakeServiceCount{
	FakeReasonEMPTY_PASSED: FakeServiceCountSERVICE_EMPTY_PASSED, FakeReasonEMPTY_REFUSED: FakeServiceCountSERVICE_EMPTY_REFUSED,
	FakeReasonDENIED: FakeServiceCountSERVICE_DENIED, FakeReasonNO_MEMORY: FakeServiceCountSERVICE_NO_MEMORY,
	FakeReasonUNTRACKED: FakeServiceCountSERVICE_UNTRACKED,
}

// noErrno is for a refusal whose errno the kernel chooses.
const noErrno syscall.Errno = math.MaxInt32

func (o outcome) equal(p outcome) bool {
	return o.passed == p.passed && o.errno == p.errno && o.to == p.to && maps.Equal(o.counted, p.counted)
}

// unleads takes the frontend of a form away.
func (l *lab) unleads(f form, p FakeTransport) {
	l.t.Helper()
	e, is := l.find(keyOf(f.frontend, p))
	if !is {
		l.t.Fatalf("%v is not there", f.frontend)
	}
	l.write(e, [3]uint64{})
}

func (l *lab) denies(cgroup uint64, service uint32) {
	l.t.Helper()
	l.put(FakeMapDenials, FakePolicyKey{Cgroup: cgroup, Service: service}, uint32(1))
}

// chosen is the slot with hits; -1 if there is none.
func (l *lab) chosen(f form) int {
	l.t.Helper()
	for i := range f.endpoints {
		if l.hits(f.six(), i) > 0 {
			return i
		}
	}
	return -1
}

// remembers checks what the socket is left with after it was led to an endpoint.
func (l *lab) remembers(f form, tracked, datagram bool, to netip.AddrPort) {
	l.t.Helper()
	s := l.storage()
	if got := s.HasConnected == 1; got != (tracked && !datagram) {
		l.t.Errorf("it remembers a connection: %v", got)
	}
	if got := s.HasDatagrams == 1; got != (tracked && datagram) {
		l.t.Errorf("it remembers datagrams: %v", got)
	}
	if !tracked {
		return
	}
	a := FakeAssociation(s.Connected)
	if datagram {
		a = FakeAssociation(s.Datagrams.Recent[0])
	}
	want := FakeAssociation{
		Frontend: words(f.frontend.Addr()), FrontendPort: port(f.frontend.Port()), Endpoint: words(to.Addr()), EndpointPort: port(to.Port()),
		Service: service, Id: uint64(l.chosen(f) + 1),
	}
	if a != want {
		l.t.Errorf("it remembers %+v, want %+v", a, want)
	}
}

// TestLaterConnectForgets: a connect that is passed drops what an earlier one left;
// a datagram that is passed does not.
func TestLaterConnectForgets(t *testing.T) {
	for _, f := range forms() {
		t.Run(f.name, func(t *testing.T) {
			direct := netip.AddrPortFrom(f.frontend.Addr(), 81)
			for what, later := range map[string]func(*lab){
				"to no frontend":     func(l *lab) { l.run(f.connect, udp, direct) },
				"to a withdrawn one": func(l *lab) { l.publishes(FakeScopeSCOPE_HOME, 0, 0, 0); l.run(f.connect, udp, f.frontend) },
				"to an empty one that passes": func(l *lab) {
					l.publishes(FakeScopeSCOPE_HOME, set, 0, FakePublicationFlagPUBLISHED)
					l.run(f.connect, udp, f.frontend)
				},
			} {
				l := f.ready(t, nil)
				if l.run(f.connect, udp, f.frontend); l.storage().HasConnected != 1 {
					t.Fatal("the first connect was not remembered")
				}
				if l.run(f.send, udp, direct); l.storage().HasConnected != 1 {
					t.Errorf("a datagram to elsewhere let the connection be forgotten")
				}
				if later(l); l.storage().HasConnected != 0 {
					t.Errorf("connect %s did not let the earlier one be forgotten", what)
				}
			}
		})
	}
}

// TestSlotsAreShared: each slot is chosen as often as any other, by connect over all
// that the kernel may draw, by datagrams over the cookies of sockets; one socket's
// datagrams stay together.
func TestSlotsAreShared(t *testing.T) {
	const draws = 3000
	for _, f := range forms() {
		t.Run(f.name, func(t *testing.T) {
			l := f.ready(t, nil)
			for i := range draws {
				l.Random = uint32(uint64(i) * math.MaxUint32 / (draws - 1)) // the smallest and the largest, too
				l.run(f.connect, tcp, f.frontend)
			}
			for i := range f.endpoints {
				if n := l.hits(f.six(), i); n < draws/3-1 || n > draws/3+1 {
					t.Errorf("slot %d was chosen %d times of %d", i, n, draws)
				}
			}
			l = f.ready(t, nil)
			first := make(map[uint64]netip.AddrPort)
			for i := range draws {
				l.Random, l.Cookie = uint32(i), uint64(i%(draws/2))+1
				got := l.run(f.send, udp, f.frontend)
				if was, again := first[l.Cookie]; again && was != got.to {
					t.Fatalf("socket %d sends to %v, then to %v", l.Cookie, was, got.to)
				}
				first[l.Cookie] = got.to
			}
			for i := range f.endpoints {
				if n := l.hits(f.six(), i); n < draws/3-100 || n > draws/3+100 {
					t.Errorf("slot %d was chosen by the datagrams of %d sockets of %d", i, n/2, draws/2)
				}
			}
		})
	}
}

// TestCountIsNotWhatIsThere: with count 0 nothing is chosen although slots are left
// from before, and with a small count none beyond it.
func TestCountIsNotWhatIsThere(t *testing.T) {
	for _, f := range forms() {
		l := f.ready(t, nil)
		for count := range len(f.endpoints) {
			l.publishes(FakeScopeSCOPE_HOME, set, count, FakePublicationFlagPUBLISHED|FakePublicationFlagREFUSES)
			for _, l.Random = range []uint32{0, math.MaxUint32 / 2, math.MaxUint32} {
				got := l.run(f.connect, tcp, f.frontend)
				if got.passed != (count > 0) {
					t.Errorf("%s: of %d slots: %+v", f.name, count, got)
				}
			}
			if n := l.hits(f.six(), count); n > 0 {
				t.Errorf("%s: slot %d of %d was chosen", f.name, count, count)
			}
		}
	}
}

// TestScopes: a socket in the agent's network namespace is given the address of the
// endpoint there, one in another the address that means the same to it.
func TestScopes(t *testing.T) {
	for _, f := range forms() {
		l := f.ready(t, nil)
		foreign := netip.AddrPortFrom(f.endpoints[1].Addr(), 4444)
		l.fills(f.six(), set+10, service, 0, slot{1, foreign})
		l.publishes(FakeScopeSCOPE_HOME, set, 1, FakePublicationFlagPUBLISHED)
		l.publishes(FakeScopeSCOPE_FOREIGN, set+10, 1, FakePublicationFlagPUBLISHED)
		for _, program := range []string{f.connect, f.send} {
			for netns, want := range map[uint64]netip.AddrPort{home: f.endpoints[0], elsewhere: foreign, 0: foreign} {
				l.Netns = netns
				if got := l.run(program, udp, f.frontend); got.to != want {
					t.Errorf("%s: %s from namespace %d goes to %v, want %v", f.name, program, netns, got.to, want)
				}
			}
		}
		// An endpoint on loopback means nothing elsewhere: none is offered there.
		l.publishes(FakeScopeSCOPE_FOREIGN, set+10, 0, FakePublicationFlagPUBLISHED|FakePublicationFlagREFUSES)
		l.Netns = elsewhere
		if got := l.run(f.connect, tcp, f.frontend); got.passed || got.errno != syscall.ECONNREFUSED {
			t.Errorf("%s: elsewhere, without an address that means something there: %+v", f.name, got)
		}
	}
}

// TestReverse: what was asked for is shown, as the peer of a connection and as the
// source of a datagram, and nothing else is altered.
func TestReverse(t *testing.T) {
	for _, f := range forms() {
		t.Run(f.name, func(t *testing.T) {
			l := f.ready(t, nil)
			show := func(program string, from, want netip.AddrPort, reason FakeReason) {
				t.Helper()
				w := outcome{passed: true, to: want, counted: map[FakeReason]int{}}
				if from != want {
					w.counted[reason] = 1
				}
				if got := l.run(program, udp, from); !got.equal(w) {
					t.Errorf("%s of %v: %+v, want %+v", program, from, got, w)
				}
			}
			for _, e := range f.endpoints { // nothing was led yet
				show(f.peer, e, e, 0)
				show(f.receive, e, e, 0)
			}
			l.Random = 0
			led := l.run(f.connect, udp, f.frontend).to
			show(f.peer, led, f.frontend, FakeReasonPEER)
			show(f.receive, led, f.frontend, FakeReasonREVERSED)
			other := netip.AddrPortFrom(led.Addr(), led.Port()+1)
			show(f.peer, other, other, 0) // it was connected again, by AF_UNSPEC, which runs no hook
			show(f.receive, other, other, 0)

			// sendto B on a socket connected to A: B is the source, A the peer.
			l.fills(f.six(), set+10, service, 0, slot{9, f.endpoints[2]})
			l.publishes(FakeScopeSCOPE_HOME, set+10, 1, FakePublicationFlagPUBLISHED)
			b := f
			b.frontend = netip.AddrPortFrom(f.frontend.Addr(), 53)
			l.leads(b, udp)
			to := l.run(f.send, udp, b.frontend).to
			show(f.receive, to, b.frontend, FakeReasonREVERSED)
			show(f.receive, led, f.frontend, FakeReasonREVERSED)
			show(f.peer, led, f.frontend, FakeReasonPEER)
			show(f.peer, to, to, 0)
		})
	}
}

// TestDatagramsOfSeveral: an unconnected socket knows the last four endpoints that
// it sent to, each once, and of each the frontend that it asked last.
func TestDatagramsOfSeveral(t *testing.T) {
	for _, f := range forms() {
		t.Run(f.name, func(t *testing.T) {
			l := f.ready(t, nil)
			ask := func(n int) (frontend, endpoint netip.AddrPort) {
				t.Helper()
				b := f
				b.frontend = netip.AddrPortFrom(f.frontend.Addr(), uint16(1000+n))
				l.leads(b, udp)
				l.fills(f.six(), set, service, 0, slot{uint64(n), netip.AddrPortFrom(f.endpoints[0].Addr(), uint16(2000+n))})
				l.publishes(FakeScopeSCOPE_HOME, set, 1, FakePublicationFlagPUBLISHED)
				return b.frontend, l.run(f.send, udp, b.frontend).to
			}
			var frontends, endpoints []netip.AddrPort
			for n := range 5 {
				for range 3 { // again and again: one place
					ask(n)
				}
				frontend, endpoint := ask(n)
				frontends, endpoints = append(frontends, frontend), append(endpoints, endpoint)
			}
			for n := range 5 {
				want := frontends[n]
				if n == 0 {
					want = endpoints[n] // of five the first is forgotten
				}
				if got := l.run(f.receive, udp, endpoints[n]); got.to != want {
					t.Errorf("the answer of endpoint %d shows %v, want %v", n, got.to, want)
				}
			}
		})
	}
}

// TestAffinity: a client stays with its endpoint until it has not asked for a while,
// by the clock to the nanosecond, or until the endpoint is not offered any more.
func TestAffinity(t *testing.T) {
	const ttl = 10
	const sticky = FakePublicationFlagPUBLISHED | FakePublicationFlagSTICKY
	for _, f := range forms() {
		for _, program := range []string{f.connect, f.send} {
			t.Run(f.name+"/"+program, func(t *testing.T) {
				l := f.ready(t, nil)
				many := func(at int, ids ...uint64) { // slots by ids, each with an address of its own
					t.Helper()
					var slots []slot
					for _, id := range ids {
						slots = append(slots, slot{id, netip.AddrPortFrom(f.endpoints[0].Addr(), uint16(5000+id))})
					}
					l.fills(f.six(), at, service, ttl, slots...)
					l.publishes(FakeScopeSCOPE_HOME, at, len(ids), sticky)
					l.publishes(FakeScopeSCOPE_FOREIGN, at, len(ids), sticky)
				}
				// ask draws one slot or another: the answer is the endpoint's id.
				ask := func(random uint32, kept bool) int {
					t.Helper()
					l.Random, l.Cookie = random, uint64(random)
					got := l.run(program, udp, f.frontend)
					want := map[FakeReason]int{FakeReasonFORWARDED: 1}
					if kept {
						want[FakeReasonKEPT] = 1
					}
					if !got.passed || !maps.Equal(got.counted, want) {
						t.Errorf("drew %d at %d: %+v, want %v", random, l.NowNs, got, want)
					}
					return int(got.to.Port()) - 5000
				}
				// another is a draw that leads elsewhere, but for affinity.
				another := func(than int) uint32 {
					t.Helper()
					for _, s := range []FakeScope{FakeScopeSCOPE_HOME, FakeScopeSCOPE_FOREIGN} {
						l.publishes(s, set, 3, FakePublicationFlagPUBLISHED)
						defer l.publishes(s, set, 3, sticky)
					}
					for i := range uint32(64) {
						if draw := i * (math.MaxUint32 / 64); ask(draw, false) != than {
							return draw
						}
					}
					t.Fatal("every draw is the same")
					return 0
				}
				l.NowNs = 1e18
				many(set, 1, 2, 3)
				first := ask(1, false)
				other := another(first)
				if again := ask(other, true); again != first {
					t.Errorf("at once %d, then %d", first, again)
				}
				l.NowNs += ttl*1e9 - 1
				if again := ask(other, true); again != first {
					t.Errorf("a nanosecond before its time %d, then %d", first, again)
				}
				l.NowNs += ttl*1e9 - 1 // since it asked last
				if again := ask(other, true); again != first {
					t.Errorf("the time does not begin again with each connect: %d, then %d", first, again)
				}
				l.NowNs += ttl * 1e9
				second := ask(other, false)
				if second == first {
					t.Errorf("after its time it is led to %d again", second)
				}

				// Another namespace is another client.
				l.Netns = elsewhere
				ask(other, false)
				l.Netns = home

				// The endpoint stands elsewhere in another set, often or once.
				for _, ids := range [][]uint64{{1, 1, 2, 2, 3, 3}, {1, 2, 2, 2, 2, 3, 9, 9, 9}, {uint64(second)}, {1, 2, 3, 4, 5, 6, 7}} {
					for at := set + 4; at < set+24; at += 19 {
						many(at, ids...)
						if got := ask(1, true); got != second {
							t.Errorf("in the set %v it is led to %d, not to %d", ids, got, second)
						}
					}
				}
				// It is not offered any more; then the client is another's.
				many(set, uint64(second)+1, uint64(second)+2)
				third := ask(1, false)
				if third == second {
					t.Errorf("led to %d, which is not offered", third)
				}
				if again := ask(other, true); again != third {
					t.Errorf("led to %d, then to %d", third, again)
				}
				// Its slot is beyond the count, though the endpoint is still written there.
				l.Netns = 5
				many(set, 1, 2, 3)
				beyond := ask(another(1), false)
				l.publishes(FakeScopeSCOPE_FOREIGN, set, 1, sticky)
				if got := ask(1, false); got != 1 {
					t.Errorf("bound to %d, which is not offered, and led to %d", beyond, got)
				}
				l.Netns = home

				// The frontend is another service's.
				many(set, uint64(third))
				l.fills(f.six(), set, service+1, ttl, slot{uint64(third), netip.AddrPortFrom(f.endpoints[0].Addr(), uint16(5000+third))})
				ask(other, false)
			})
		}
	}
}

// TestFlows: who watches is told of each decision that a service is part of.
func TestFlows(t *testing.T) {
	for _, f := range forms() {
		l := f.ready(t, map[string]any{FakeVarPolicyInForce: true})
		l.run(f.connect, tcp, f.frontend)
		l.put(FakeMapSettings, uint32(0), FakeSettings{SampleOneIn: 1})
		led := l.run(f.connect, tcp, f.frontend).to
		l.denies(cgroup, service)
		l.run(f.send, udp, f.frontend)
		l.put(FakeMapSettings, uint32(0), FakeSettings{})
		l.run(f.connect, tcp, f.frontend)
		common := FakeFlow{
			AtNs: l.NowNs, Cgroup: cgroup, Netns: home, Frontend: words(f.frontend.Addr()), FrontendPort: port(f.frontend.Port()),
			Service: service, Pid: 7, Uid: 10,
		}
		copy(common.Process[:], []int8{'t', 'e', 's', 't'})
		if f.six() {
			common.Six = 1
		}
		want := []FakeFlow{common, common}
		want[0].Transport, want[0].Reason, want[0].Endpoint = uint8(tcp), uint8(FakeReasonFORWARDED), uint64(l.chosen(f)+1)
		want[0].Destination, want[0].DestinationPort = words(led.Addr()), port(led.Port())
		want[1].Transport, want[1].Reason = uint8(udp), uint8(FakeReasonDENIED)
		if got := l.flows(); !slices.Equal(got, want) {
			t.Errorf("%s: told of\n%+v, want\n%+v", f.name, got, want)
		}
	}
}
