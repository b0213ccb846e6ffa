package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
)

//go:generate go tool -modfile=../tools/go.mod bpf2go -tags linux -go-package bpf -cc clang -strip llvm-strip -cflags "-O2 -g -Wall -Wextra -Werror -Wno-unused-parameter -Iheaders" -type reason -type verdict -type publication_flag -type scope -type service_count -type transport -type flow Fake socket_test.c

// What the fake kernel says unless a test wants another thing.
const (
	home      = 1000 // cookie of the agent's network namespace
	elsewhere = 1001
	cgroup    = 2000
	service   = 77
	set       = 10 // where its endpoints are, and the service
	room      = 64 // slots that there are of each family, and places for services
	buckets   = 8  // for frontends
)

// lab runs the programs of socket.c on maps of its own and with a fake kernel;
// see socket_test.c. The socket, the maps and the counters live as long as it.
type lab struct {
	t        *testing.T
	c        *ebpf.Collection // of maps
	spec     *ebpf.CollectionSpec
	programs map[string]*ebpf.Program // that were needed
	FakeScene
	entries []entry   // that lead to the set
	words   [2]uint64 // of all of these, by scope
}

// newLab loads them. constants are those that a loader of socket.c sets.
func newLab(t *testing.T, constants map[string]any) *lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: loading programs needs root")
	}
	spec, err := LoadFake()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{FakeMapFrontends4, FakeMapFrontends6, FakeMapForeign4, FakeMapForeign6} {
		spec.Maps[name].MaxEntries = buckets
	}
	for _, name := range []string{FakeMapEndpoints4, FakeMapEndpoints6, FakeMapServices} {
		spec.Maps[name].MaxEntries = room
	}
	for _, name := range []string{FakeVarMask4, FakeVarMask6} {
		if err := spec.Variables[name].Set(uint32(buckets - 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := spec.Variables[FakeVarHome].Set(uint64(home)); err != nil {
		t.Fatal(err)
	}
	for name, value := range constants {
		if err := spec.Variables[name].Set(value); err != nil {
			t.Fatal(err)
		}
	}
	maps := spec.Copy()
	clear(maps.Programs)
	c, err := ebpf.NewCollection(maps)
	l := &lab{
		t: t, c: c, spec: spec, programs: make(map[string]*ebpf.Program),
		FakeScene: FakeScene{Netns: home, Cgroup: cgroup, Cookie: 1, NowNs: 1},
	}
	l.must(err)
	t.Cleanup(c.Close)
	return l
}

// program loads a program of the lab when it is first needed: to have all of them
// judged takes the kernel longer than any test.
func (l *lab) program(name string) *ebpf.Program {
	l.t.Helper()
	if p := l.programs[name]; p != nil {
		return p
	}
	spec := l.spec.Copy()
	for other := range spec.Programs {
		if other != name {
			delete(spec.Programs, other)
		}
	}
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: l.c.Maps})
	l.must(err)
	defer c.Close()
	p := c.DetachProgram(name)
	l.t.Cleanup(func() { p.Close() })
	l.programs[name] = p
	return p
}

// must ends the test when something could not be loaded.
func (l *lab) must(err error) {
	l.t.Helper()
	var judged *ebpf.VerifierError
	switch {
	case errors.As(err, &judged):
		l.t.Fatalf("%+v", judged)
	case errors.Is(err, ebpf.ErrNotSupported):
		l.t.Skipf("skipped: this kernel lacks something: %v", err)
	case err != nil:
		l.t.Fatal(err)
	}
}

// form is a way for an application to name an address.
type form struct {
	name          string
	connect, send string // the programs that are asked
	peer, receive string
	frontend      netip.AddrPort
	endpoints     []netip.AddrPort // of ids 1…
}

func forms() []form {
	at := netip.MustParseAddrPort
	four := form{
		"v4", FakeProgRunConnect4, FakeProgRunSendmsg4, FakeProgRunGetpeername4, FakeProgRunRecvmsg4,
		at("10.200.0.1:80"),
		[]netip.AddrPort{at("127.0.0.1:9001"), at("10.9.0.2:9002"), at("10.9.0.3:9003")},
	}
	six := form{
		"v6", FakeProgRunConnect6, FakeProgRunSendmsg6, FakeProgRunGetpeername6, FakeProgRunRecvmsg6,
		at("[fd00:200::1]:80"),
		[]netip.AddrPort{at("[::1]:9001"), at("[fd00:9::2]:9002"), at("[fd00:9::3]:9003")},
	}
	mapped := six
	mapped.name, mapped.frontend, mapped.endpoints = "mapped", in6(four.frontend), nil
	for _, e := range four.endpoints {
		mapped.endpoints = append(mapped.endpoints, in6(e))
	}
	return []form{four, six, mapped}
}

// in6 is how an IPv6 socket names an IPv4 address.
func in6(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16(a.Addr().As16()), a.Port())
}

// six reports whether the maps of IPv6 hold it.
func (f form) six() bool { return f.frontend.Addr().Unmap().Is6() }

// words are an address as programs see it.
func words(a netip.Addr) (w [4]uint32) {
	if a = a.Unmap(); a.Is4() {
		b := a.As4()
		w[3] = binary.NativeEndian.Uint32(b[:])
		return w
	}
	b := a.As16()
	for i := range w {
		w[i] = binary.NativeEndian.Uint32(b[4*i:])
	}
	return w
}

func port(p uint16) uint16 { return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, p)) }

func (l *lab) put(name string, key, value any) {
	l.t.Helper()
	if err := l.c.Maps[name].Put(key, value); err != nil {
		l.t.Fatalf("%s: %v", name, err)
	}
}

// leads lets the frontend of a form lead to the set.
func (l *lab) leads(f form, p FakeTransport) {
	l.t.Helper()
	k := keyOf(f.frontend, p)
	e, is := l.find(k)
	if !is {
		e = l.free(k)
		l.entries = append(l.entries, e)
	}
	l.write(e, k.words)
	for scope, word := range l.words {
		l.say(e, FakeScope(scope), word)
	}
}

// publishes sets what is said of all frontends: to sockets at home, and to those
// elsewhere.
func (l *lab) publishes(scope FakeScope, at, count int, flags FakePublicationFlag) {
	l.t.Helper()
	l.words[scope] = uint64(at) | uint64(count)<<32 | uint64(flags)<<48
	for _, e := range l.entries {
		l.say(e, scope, l.words[scope])
	}
}

// slot is a place in a set.
type slot struct {
	id   uint64
	addr netip.AddrPort
}

// fills writes a set of slots that were never chosen, and its service in the place of
// the same number.
func (l *lab) fills(six bool, at int, svc, affinitySeconds uint32, slots ...slot) {
	l.t.Helper()
	l.put(FakeMapServices, uint32(at), FakeService{Id: svc, AffinitySeconds: affinitySeconds})
	for i, s := range slots {
		w := words(s.addr.Addr())
		if six {
			l.put(FakeMapEndpoints6, uint32(at+i), FakeEndpoint6{Address: w, Port: port(s.addr.Port()), Id: s.id, Service: svc, At: uint32(at)})
		} else {
			l.put(FakeMapEndpoints4, uint32(at+i), FakeEndpoint4{Address: w[3], Port: port(s.addr.Port()), Id: s.id, Service: svc, At: uint32(at)})
		}
	}
}

// slots are the endpoints of a form, with ids from 1 on.
func (f form) slots() []slot {
	out := make([]slot, len(f.endpoints))
	for i, e := range f.endpoints {
		out[i] = slot{uint64(i + 1), e}
	}
	return out
}

// ready is a lab in which the frontend of a form leads to its endpoints.
func (f form) ready(t *testing.T, constants map[string]any) *lab {
	t.Helper()
	l := newLab(t, constants)
	l.leads(f, FakeTransportTRANSPORT_TCP)
	l.leads(f, FakeTransportTRANSPORT_UDP)
	l.fills(f.six(), set, service, 0, f.slots()...)
	for _, s := range []FakeScope{FakeScopeSCOPE_HOME, FakeScopeSCOPE_FOREIGN} {
		l.publishes(s, set, len(f.endpoints), FakePublicationFlagPUBLISHED|FakePublicationFlagREFUSES)
	}
	return l
}

// outcome is what a program said.
type outcome struct {
	passed  bool
	errno   syscall.Errno
	to      netip.AddrPort
	counted map[FakeReason]int
}

// run asks a program about an address.
func (l *lab) run(program string, p FakeTransport, to netip.AddrPort) outcome {
	l.t.Helper()
	l.Protocol, l.Port, l.Retval = uint32(p), port(to.Port()), 0
	l.Ip4, l.Ip6 = 0, [4]uint32{}
	if to.Addr().Is4() {
		l.Ip4 = words(to.Addr())[3]
	} else {
		b := to.Addr().As16()
		for i := range l.Ip6 {
			l.Ip6[i] = binary.NativeEndian.Uint32(b[4*i:])
		}
	}
	before := l.reasons()
	if err := l.c.Variables[FakeVarScene].Set(&l.FakeScene); err != nil {
		l.t.Fatal(err)
	}
	if _, err := l.program(program).Run(&ebpf.RunOptions{Data: make([]byte, 64)}); err != nil {
		if errors.Is(err, ebpf.ErrNotSupported) {
			l.t.Skipf("skipped: this kernel runs no programs for tests: %v", err)
		}
		l.t.Fatal(err)
	}
	if err := l.c.Variables[FakeVarScene].Get(&l.FakeScene); err != nil {
		l.t.Fatal(err)
	}
	out := outcome{passed: l.Verdict == int32(FakeVerdictPASS), errno: syscall.Errno(-l.Retval), counted: make(map[FakeReason]int)}
	for r, n := range l.reasons() {
		if n != before[r] {
			out.counted[FakeReason(r)] = int(n - before[r])
		}
	}
	at := netip.AddrFrom4([4]byte(binary.NativeEndian.AppendUint32(nil, l.Ip4)))
	if !to.Addr().Is4() {
		var b [16]byte
		for i, w := range l.Ip6 {
			binary.NativeEndian.PutUint32(b[4*i:], w)
		}
		at = netip.AddrFrom16(b)
	}
	out.to = netip.AddrPortFrom(at, binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, l.Port)))
	return out
}

// reasons adds up what all processors counted.
func (l *lab) reasons() (sums [FakeReasonREASONS]uint64) {
	l.t.Helper()
	for r := range sums {
		var each []uint64
		if err := l.c.Maps[FakeMapReasons].Lookup(uint32(r), &each); err != nil {
			l.t.Fatal(err)
		}
		for _, n := range each {
			sums[r] += n
		}
	}
	return sums
}

// storage is what the socket remembers.
func (l *lab) storage() (s FakeStorage) {
	l.t.Helper()
	if err := l.c.Variables[FakeVarStorage].Get(&s); err != nil {
		l.t.Fatal(err)
	}
	return s
}

// hits is how often a slot of the set was chosen.
func (l *lab) hits(six bool, slot int) uint64 {
	l.t.Helper()
	if six {
		var e FakeEndpoint6
		l.get(FakeMapEndpoints6, uint32(set+slot), &e)
		return e.Hits
	}
	var e FakeEndpoint4
	l.get(FakeMapEndpoints4, uint32(set+slot), &e)
	return e.Hits
}

// counts are what was counted of the service beside hits.
func (l *lab) counts() (n [FakeServiceCountSERVICE_COUNTS]uint64) {
	l.t.Helper()
	var s FakeService
	l.get(FakeMapServices, uint32(set), &s)
	return s.Counts
}

func (l *lab) get(name string, key, value any) {
	l.t.Helper()
	if err := l.c.Maps[name].Lookup(key, value); err != nil {
		l.t.Fatalf("%s: %v", name, err)
	}
}

// flows are what was told to who watches.
func (l *lab) flows() (out []FakeFlow) {
	l.t.Helper()
	r, err := ringbuf.NewReader(l.c.Maps[FakeMapFlows])
	if err != nil {
		l.t.Fatal(err)
	}
	defer r.Close()
	r.SetDeadline(time.Unix(1, 0)) // it is all there
	for {
		record, err := r.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return out
		}
		var f FakeFlow
		if err == nil {
			err = binary.Read(bytes.NewReader(record.RawSample), binary.NativeEndian, &f)
		}
		if err != nil {
			l.t.Fatal(err)
		}
		out = append(out, f)
	}
}
