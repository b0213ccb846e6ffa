package plan

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane"
)

func endpoint(id uint64, addr, foreign string, weight uint16) dataplane.Endpoint {
	e := dataplane.Endpoint{ID: id, Addr: netip.MustParseAddrPort(addr), Weight: weight}
	if foreign != "" {
		e.AddrForeign = netip.MustParseAddrPort(foreign)
	}
	return e
}

func frontend(addr string) dataplane.Frontend {
	return dataplane.Frontend{Addr: netip.MustParseAddrPort(addr), Protocol: dataplane.TCP, Kind: dataplane.FrontendVIP}
}

func at(addr string, side Side) Place {
	return Place{frontend(addr).Binding(), side}
}

func service(frontends []dataplane.Frontend, endpoints ...dataplane.Endpoint) *dataplane.Service {
	return &dataplane.Service{Key: dataplane.Key{Namespace: "default", Name: "web"}, Frontends: frontends, Endpoints: dataplane.NewEndpoints(endpoints...)}
}

func TestSides(t *testing.T) {
	svc := service([]dataplane.Frontend{frontend("10.0.0.1:80")}, endpoint(1, "127.0.0.1:9001", "10.9.0.1:19001", 1), endpoint(2, "10.9.0.2:80", "", 1))
	p := Compile(svc, Host{})
	local, foreign := p.Entries[at("10.0.0.1:80", Local)], p.Entries[at("10.0.0.1:80", Foreign)]
	if p.Problem != nil || local == nil || foreign == nil {
		t.Fatalf("%+v", p)
	}
	if local.Endpoints[0].Addr.String() != "127.0.0.1:9001" || foreign.Endpoints[0].Addr.String() != "10.9.0.1:19001" || foreign.Endpoints[1].Addr.String() != "10.9.0.2:80" {
		t.Errorf("local %v, foreign %v", local.Endpoints, foreign.Endpoints)
	}
	// Where only packets from elsewhere are led there is one side.
	p = Compile(svc, Host{Forwarded: true})
	if e := p.Entries[at("10.0.0.1:80", Local)]; len(p.Entries) != 1 || e.Endpoints[0].Addr.String() != "10.9.0.1:19001" {
		t.Errorf("forwarded: %+v", p.Entries)
	}
	// And one where there is no difference.
	if p = Compile(service(svc.Frontends, endpoint(2, "10.9.0.2:80", "", 1)), Host{}); len(p.Entries) != 1 {
		t.Errorf("no difference: %+v", p.Entries)
	}
}

func TestLoopbackEndpointsAreOutOfReachFromElsewhere(t *testing.T) {
	svc := service([]dataplane.Frontend{frontend("10.0.0.1:80")}, endpoint(1, "127.0.0.1:9001", "", 1))
	p := Compile(svc, Host{})
	if e := p.Entries[at("10.0.0.1:80", Foreign)]; e == nil || len(e.Endpoints) != 0 {
		t.Errorf("packets from elsewhere are led to %+v, want refused", e)
	}
	if p = Compile(svc, Host{Loopback: true}); len(p.Entries) != 1 {
		t.Errorf("with route_localnet: %+v", p.Entries)
	}
}

func TestFrontendsThatCannotBeLed(t *testing.T) {
	good, end := frontend("10.0.0.1:80"), endpoint(1, "10.9.0.2:80", "", 1)
	for name, c := range map[string]struct {
		frontends []dataplane.Frontend
		host      Host
		status    dataplane.Status
		entries   int
	}{
		"loopback":             {[]dataplane.Frontend{frontend("127.0.0.1:80")}, Host{}, dataplane.StatusUnsupported, 0},
		"loopback of IPv6":     {[]dataplane.Frontend{frontend("[::1]:80")}, Host{Loopback: true}, dataplane.StatusUnsupported, 0},
		"loopback and another": {[]dataplane.Frontend{frontend("127.0.0.1:80"), good}, Host{}, dataplane.StatusPartial, 1},
		"loopback, localnet":   {[]dataplane.Frontend{frontend("127.0.0.1:80")}, Host{Loopback: true}, 0, 1},
		"IPv6 without NAT":     {[]dataplane.Frontend{frontend("[fd00::1]:80")}, Host{NoIPv6: true}, dataplane.StatusUnsupported, 0},
		"IPv6 to IPv4":         {[]dataplane.Frontend{frontend("[fd00::1]:80")}, Host{}, dataplane.StatusPartial, 1},
		"no frontend":          {nil, Host{}, 0, 0},
	} {
		p := Compile(service(c.frontends, end), c.host)
		var status dataplane.Status
		if p.Problem != nil {
			status = p.Problem.Status
		}
		if status != c.status || len(p.Entries) != c.entries {
			t.Errorf("%s: %v with %d entries, want %v with %d", name, p.Problem, len(p.Entries), c.status, c.entries)
		}
	}
	long := service([]dataplane.Frontend{good}, end)
	long.Key.Name = strings.Repeat("x", MaxKeyBytes)
	if p := Compile(long, Host{}); p.Problem == nil || p.Problem.Reason != dataplane.ReasonLimit {
		t.Errorf("a long name: %+v", p.Problem)
	}
	balanced := service([]dataplane.Frontend{good}, end)
	balanced.Balance = dataplane.BalanceLeastLoad
	if p := Compile(balanced, Host{}); p.Problem == nil || p.Problem.Status != dataplane.StatusPartial || len(p.Entries) != 1 {
		t.Errorf("least load: %+v", p.Problem)
	}
}

func TestEmpty(t *testing.T) {
	pass := frontend("10.0.0.2:80")
	pass.OnEmpty = dataplane.OnEmptyPass
	p := Compile(service([]dataplane.Frontend{frontend("10.0.0.1:80"), pass}), Host{})
	if e := p.Entries[at("10.0.0.1:80", Local)]; len(p.Entries) != 1 || e == nil || len(e.Slots) != 0 {
		t.Errorf("%+v, want one that refuses", p.Entries)
	}
}

func TestAffinityIsInWholeSeconds(t *testing.T) {
	svc := service([]dataplane.Frontend{frontend("10.0.0.1:80")}, endpoint(1, "10.9.0.2:80", "", 1))
	svc.Affinity = dataplane.Affinity{ByClient: true, TTL: time.Millisecond}
	if e := Compile(svc, Host{}).Entries[at("10.0.0.1:80", Local)]; e.Sticky != time.Second {
		t.Errorf("%v", e.Sticky)
	}
}

func TestMergeKeepsWhatIsNotSaid(t *testing.T) {
	key := dataplane.Key{Namespace: "default", Name: "web"}
	a, b, c := Endpoint{1, netip.MustParseAddrPort("10.9.0.1:80")}, Endpoint{2, netip.MustParseAddrPort("10.9.0.2:80")}, Endpoint{3, netip.MustParseAddrPort("10.9.0.3:80")}
	old := &Entry{Service: key, Endpoints: []Endpoint{a, b, c}, Slots: []uint64{1, 2, 2, 3}}
	now := &Entry{Service: key, Endpoints: []Endpoint{c}, Slots: []uint64{3}}
	m := now.Merge(old, func(id uint64) bool { return id == 3 || id == 1 }) // 1 drains, say
	if want := (&Entry{Service: key, Endpoints: []Endpoint{b, c}, Slots: []uint64{3, 2, 2}}); !m.Equal(want) {
		t.Errorf("%+v, want %+v", m, want)
	}
	if now.Merge(&Entry{Service: dataplane.Key{Namespace: "default", Name: "other"}, Endpoints: old.Endpoints}, func(uint64) bool { return false }) != now {
		t.Error("endpoints of another service were taken over")
	}
}

func TestShare(t *testing.T) {
	for _, c := range []struct {
		weights []uint16
		want    []int
	}{
		{nil, []int{}},
		{[]uint16{7}, []int{1}},
		{[]uint16{1, 1, 1}, []int{1, 1, 1}},
		{[]uint16{10, 20, 70}, []int{1, 2, 7}},
	} {
		got := Share(c.weights)
		if len(got) != len(c.want) {
			t.Errorf("Share(%v) = %v, want %v", c.weights, got, c.want)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("Share(%v) = %v, want %v", c.weights, got, c.want)
				break
			}
		}
	}
}

// TestSharesAreRight: each gets one at least, and else within one slot of its part.
func TestSharesAreRight(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		weights := make([]uint16, 1+random.IntN(40))
		sum := 0
		for i := range weights {
			weights[i] = uint16(1 + random.IntN(1<<(1+random.IntN(16))-1))
			sum += int(weights[i])
		}
		slots := Share(weights)
		all := 0
		for _, n := range slots {
			all += n
		}
		if all > MaxSlots+len(weights) {
			t.Fatalf("%v: %d slots", weights, all)
		}
		for i, n := range slots {
			exact := float64(weights[i]) * float64(all) / float64(sum)
			if n < 1 || n > 1 && (float64(n) > exact+2 || float64(n) < exact-float64(len(weights))) {
				t.Fatalf("%v: endpoint %d has %d of %d slots, its part is %.2f", weights, i, n, all, exact)
			}
		}
	}
}
