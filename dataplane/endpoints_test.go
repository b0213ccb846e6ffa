package dataplane

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// randomEndpoint returns any endpoint that a list can hold, in its normal form.
func randomEndpoint(r *rand.Rand) Endpoint {
	addr := func() netip.AddrPort {
		switch r.IntN(4) {
		case 0:
			return netip.AddrPort{}
		case 1:
			var ip [16]byte
			for i := range ip {
				ip[i] = byte(r.Uint32())
			}
			return netip.AddrPortFrom(netip.AddrFrom16(ip), uint16(r.Uint32()))
		}
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, byte(r.Uint32()), byte(r.Uint32())}), uint16(r.Uint32()))
	}
	e := Endpoint{ID: r.Uint64(), Addr: addr(), Weight: 1, Name: strings.Repeat("n", r.IntN(300)*r.IntN(2))}
	if r.IntN(2) == 0 {
		e.AddrForeign = addr()
	}
	if r.IntN(2) == 0 {
		e.Weight, e.State = uint16(r.Uint32()), EndpointState(r.Uint32())
	}
	if r.IntN(3) == 0 {
		e.Zone, e.DrainUntil = fmt.Sprint("zone-", r.IntN(9)), time.Unix(r.Int64N(4e9)-1e9, r.Int64N(1e9)).UTC()
	}
	return e.normal()
}

func TestEndpointsKeepAll(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		want := make([]Endpoint, r.IntN(12))
		for i := range want {
			want[i] = randomEndpoint(r)
		}
		l := NewEndpoints(want...)
		slices.SortFunc(want, func(a, b Endpoint) int {
			return strings.Compare(fmt.Sprintf("%016x", a.ID), fmt.Sprintf("%016x", b.ID))
		})
		if got := l.Slice(); !slices.Equal(got, want) {
			t.Fatalf("packed\n%v\ncame back as\n%v", want, got)
		}
		if l.Len() != len(want) {
			t.Fatalf("Len is %d of %d", l.Len(), len(want))
		}
		for i, e := range want {
			if got, ok := l.Get(e.ID); !ok || !got.Equal(e) {
				t.Fatalf("Get(%x) is %v, %v", e.ID, got, ok)
			}
			if i == 0 && e.ID > 0 {
				if _, ok := l.Get(e.ID - 1); ok {
					t.Fatalf("Get finds what is not there")
				}
			}
		}
		if again := NewEndpoints(l.Slice()...); again != l {
			t.Fatalf("equal endpoints, two lists: %q and %q", again.packed, l.packed)
		}
		for rest, n := l.entries(), 0; rest != ""; n++ {
			_, wantRest := unpack(rest)
			if _, rest = skip(rest); rest != wantRest {
				t.Fatalf("skip and unpack disagree after entry %d", n)
			}
		}
	}
}

func TestEndpointsNormalForm(t *testing.T) {
	at := netip.MustParseAddrPort
	unspecified := at("[::]:0")
	for _, c := range []struct{ name, addr, foreign, wantAddr, wantForeign string }{
		{"as it is", "10.0.0.1:80", "10.0.0.2:81", "10.0.0.1:80", "10.0.0.2:81"},
		{"the same twice", "10.0.0.1:80", "10.0.0.1:80", "10.0.0.1:80", ""},
		{"IPv4 in IPv6", "[::ffff:10.0.0.1]:80", "[::ffff:10.0.0.2]:80", "10.0.0.1:80", "10.0.0.2:80"},
		{"IPv4 in IPv6, the same", "[::ffff:10.0.0.1]:80", "10.0.0.1:80", "10.0.0.1:80", ""},
		{"a zone", "[fe80::1%eth0]:80", "[fd00::1]:80", "[::]:0", "[fd00::1]:80"},
		{"a foreign zone", "10.0.0.1:80", "[fe80::1%eth0]:80", "10.0.0.1:80", "[::]:0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := Endpoint{ID: 1, Addr: at(c.addr), AddrForeign: at(c.foreign)}
			got, _ := NewEndpoints(e).Get(1)
			if got.Addr != at(c.wantAddr) || c.wantForeign != "" && got.AddrForeign != at(c.wantForeign) || c.wantForeign == "" && got.AddrForeign.IsValid() {
				t.Errorf("got %v, %v", got.Addr, got.AddrForeign)
			}
			if !got.Equal(e) {
				t.Error("not Equal to what was packed")
			}
			if got.Addr == unspecified || got.AddrForeign == unspecified {
				if p := (&Service{Key: Key{"default", "web"}, Endpoints: NewEndpoints(e)}).Check(); p == nil || p.Reason != ReasonBadEndpoint {
					t.Errorf("Check lets an address with a zone pass: %v", p)
				}
			}
		})
	}
}

func TestEndpointsTakeTheLastOfAnID(t *testing.T) {
	l := NewEndpoints(Endpoint{ID: 2, Name: "b"}, Endpoint{ID: 1, Name: "old"}, Endpoint{ID: 2, Name: "c"}, Endpoint{ID: 1, Name: "new"})
	if got := fmt.Sprint(l.Len(), l); got != "2 new@invalid AddrPort/ready c@invalid AddrPort/ready" {
		t.Errorf("list is %s", got)
	}
	given := []Endpoint{{ID: 2}, {ID: 1}}
	NewEndpoints(given...)
	if given[0].ID != 2 {
		t.Error("NewEndpoints sorts what it was given")
	}
}

func TestEndpointsStopEarly(t *testing.T) {
	n := 0
	for range NewEndpoints(Endpoint{ID: 1}, Endpoint{ID: 2}).All() {
		n++
		break
	}
	if n != 1 {
		t.Errorf("%d steps", n)
	}
	var zero Endpoints
	if zero.Len() != 0 || zero.String() != "" || NewEndpoints() != zero || len(zero.Slice()) != 0 {
		t.Error("the zero list is not the empty one")
	}
	if s := NewEndpoints(Endpoint{ID: 0xabc}).String(); !strings.HasPrefix(s, "0000000000000abc@") {
		t.Errorf("an endpoint without a name prints as %s", s)
	}
}

func TestEndpointsAreSmall(t *testing.T) {
	list := make([]Endpoint, 100)
	for i := range list {
		list[i] = Endpoint{ID: uint64(i + 1), Name: "web-1-2-3", Zone: "zone-1", Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, 1, byte(i)}), 19001), Weight: 1}
	}
	if perEndpoint := len(NewEndpoints(list...).packed) / len(list); perEndpoint > 33 {
		t.Errorf("an endpoint with name and zone takes %d bytes, 33 at most", perEndpoint)
	}
}

func TestEndpointEqual(t *testing.T) {
	a := Endpoint{ID: 1, Name: "a", Addr: netip.MustParseAddrPort("10.0.0.1:80"), Weight: 1, DrainUntil: time.Unix(100, 5)}
	same := a
	same.DrainUntil = time.Unix(100, 5).UTC()
	same.AddrForeign = a.Addr
	if !a.Equal(same) {
		t.Error("the same time in another location, the same address written twice: not equal")
	}
	for name, change := range map[string]func(*Endpoint){
		"id": func(e *Endpoint) { e.ID = 2 }, "name": func(e *Endpoint) { e.Name = "b" }, "state": func(e *Endpoint) { e.State = Suspect },
		"address": func(e *Endpoint) { e.Addr = netip.MustParseAddrPort("10.0.0.1:81") }, "weight": func(e *Endpoint) { e.Weight = 0 },
		"foreign": func(e *Endpoint) { e.AddrForeign = netip.MustParseAddrPort("10.0.0.1:81") }, "zone": func(e *Endpoint) { e.Zone = "z" },
		"drain": func(e *Endpoint) { e.DrainUntil = time.Unix(100, 6) },
	} {
		b := a
		if change(&b); a.Equal(b) {
			t.Errorf("%s: equal", name)
		}
		if NewEndpoints(a) == NewEndpoints(b) {
			t.Errorf("%s: the lists are the same", name)
		}
	}
}
