package dataplane

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func goodService() *Service {
	return &Service{
		Key: Key{"default", "web"},
		Frontends: []Frontend{
			{Addr: netip.MustParseAddrPort("10.200.0.1:80"), Protocol: TCP, Kind: FrontendVIP},
			{Addr: netip.MustParseAddrPort("10.200.0.1:80"), Protocol: UDP, Kind: FrontendVIP, OnEmpty: OnEmptyPass},
			{Addr: netip.MustParseAddrPort("127.0.0.1:8001"), Protocol: TCP, Kind: FrontendIntercept},
			{Addr: netip.MustParseAddrPort("[fd00::1]:80"), Protocol: TCP, Kind: FrontendVIP},
		},
		Endpoints: NewEndpoints(goodEndpoint(1), goodEndpoint(2)),
		Balance:   BalanceHash,
		Affinity:  Affinity{ByClient: true, TTL: time.Minute},
		Hosts:     []string{"web.example"},
		Routes:    []Route{{Host: "web.example", PathPrefix: "/x", Headers: map[string]string{"a": "b"}, Methods: []string{"GET"}}},
		DrainTime: time.Second,
	}
}

func goodEndpoint(id uint64) Endpoint {
	return Endpoint{ID: id, Name: "web-1", Addr: netip.MustParseAddrPort("10.9.0.1:9000"), AddrForeign: netip.MustParseAddrPort("10.9.0.1:9001"), Weight: 1}
}

func TestCheckTellsEachFault(t *testing.T) {
	if p := goodService().Check(); p != nil {
		t.Fatalf("a good service: %v", p)
	}
	if p := (&Service{Key: Key{"default", "web"}}).Check(); p != nil {
		t.Fatalf("a service with a name only: %v", p)
	}
	at := netip.MustParseAddrPort
	frontend := func(change func(*Frontend)) func(*Service) {
		return func(s *Service) { change(&s.Frontends[0]) }
	}
	endpoint := func(change func(*Endpoint)) func(*Service) {
		return func(s *Service) {
			e := goodEndpoint(3)
			change(&e)
			s.Endpoints = NewEndpoints(goodEndpoint(1), e)
		}
	}
	for _, c := range []struct {
		name   string
		change func(*Service)
		status Status
		reason string
		says   string
	}{
		{"no name", func(s *Service) { s.Key.Name = "" }, StatusRejected, ReasonBadValue, "slash"},
		{"no namespace", func(s *Service) { s.Key.Namespace = "" }, StatusRejected, ReasonBadValue, "slash"},
		{"slash in the name", func(s *Service) { s.Key.Name = "a/b" }, StatusRejected, ReasonBadValue, "default/a/b"},
		{"host that is no text", func(s *Service) { s.Hosts = []string{"\xff"} }, StatusRejected, ReasonBadValue, "UTF-8"},
		{"header that is no text", func(s *Service) { s.Routes[0].Headers = map[string]string{"a": "\xff"} }, StatusRejected, ReasonBadValue, "UTF-8"},
		{"definition too long", func(s *Service) { s.Routes[0].PathPrefix = strings.Repeat("x", MaxDefinitionBytes) }, StatusRejected, ReasonLimit, "262144 at most"},
		{"too many frontends", func(s *Service) { s.Frontends = make([]Frontend, MaxDefinitionBytes/32) }, StatusRejected, ReasonLimit, "split"},
		{"balance", func(s *Service) { s.Balance = 5 }, StatusUnsupported, ReasonUnknownValue, "unknown(5)"},
		{"drain time", func(s *Service) { s.DrainTime = -1 }, StatusRejected, ReasonBadValue, "-1ns"},
		{"affinity", func(s *Service) { s.Affinity.TTL = -1 }, StatusRejected, ReasonBadValue, "-1ns"},
		{"protocol 0", frontend(func(f *Frontend) { f.Protocol = 0 }), StatusUnsupported, ReasonUnknownValue, "unknown(0)"},
		{"protocol 3", frontend(func(f *Frontend) { f.Protocol = 3 }), StatusUnsupported, ReasonUnknownValue, "unknown(3)"},
		{"kind 0", frontend(func(f *Frontend) { f.Kind = 0 }), StatusUnsupported, ReasonUnknownValue, "unknown(0)"},
		{"kind 3", frontend(func(f *Frontend) { f.Kind = 3 }), StatusUnsupported, ReasonUnknownValue, "unknown(3)"},
		{"on empty", frontend(func(f *Frontend) { f.OnEmpty = 3 }), StatusUnsupported, ReasonUnknownValue, "unknown(3)"},
		{"no frontend address", frontend(func(f *Frontend) { f.Addr = netip.AddrPort{} }), StatusRejected, ReasonBadFrontend, "invalid"},
		{"port 0", frontend(func(f *Frontend) { f.Addr = at("10.200.0.1:0") }), StatusRejected, ReasonBadFrontend, "10.200.0.1:0"},
		{"unspecified", frontend(func(f *Frontend) { f.Addr = at("0.0.0.0:80") }), StatusRejected, ReasonBadFrontend, "0.0.0.0"},
		{"multicast", frontend(func(f *Frontend) { f.Addr = at("224.0.0.1:80") }), StatusRejected, ReasonBadFrontend, "224.0.0.1"},
		{"IPv4 in IPv6", frontend(func(f *Frontend) { f.Addr = at("[::ffff:10.0.0.1]:80") }), StatusRejected, ReasonBadFrontend, "ffff"},
		{"zone", frontend(func(f *Frontend) { f.Addr = at("[fe80::1%eth0]:80") }), StatusRejected, ReasonBadFrontend, "eth0"},
		{"twice", func(s *Service) { s.Frontends[2] = s.Frontends[0]; s.Frontends[2].Kind = FrontendIntercept }, StatusRejected, ReasonDuplicateFrontend, "twice"},
		{"no id", endpoint(func(e *Endpoint) { e.ID = 0 }), StatusRejected, ReasonBadEndpoint, "no id"},
		{"state", endpoint(func(e *Endpoint) { e.State = 3 }), StatusUnsupported, ReasonUnknownValue, "unknown(3)"},
		{"no address", endpoint(func(e *Endpoint) { e.Addr = netip.AddrPort{} }), StatusRejected, ReasonBadEndpoint, "web-1"},
		{"endpoint port 0", endpoint(func(e *Endpoint) { e.Addr = at("10.9.0.1:0") }), StatusRejected, ReasonBadEndpoint, "10.9.0.1:0"},
		{"foreign unspecified", endpoint(func(e *Endpoint) { e.AddrForeign = at("[::]:9") }), StatusRejected, ReasonBadEndpoint, "[::]:9"},
		{"long name", endpoint(func(e *Endpoint) { e.Name = strings.Repeat("x", MaxEndpointTextBytes); e.Zone = "z" }), StatusRejected, ReasonLimit, "4097"},
		{"name that is no text", endpoint(func(e *Endpoint) { e.Name = "\xff" }), StatusRejected, ReasonBadValue, "UTF-8"},
		{"loop", endpoint(func(e *Endpoint) { e.Addr = at("127.0.0.1:8001") }), StatusRejected, ReasonLoop, "127.0.0.1:8001"},
		{"foreign loop", endpoint(func(e *Endpoint) { e.AddrForeign = at("[fd00::1]:80") }), StatusRejected, ReasonLoop, "circle"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := goodService()
			c.change(s)
			p := s.Check()
			if p == nil {
				t.Fatal("passed")
			}
			if p.Status != c.status || p.Reason != c.reason || !strings.Contains(p.Message, c.says) {
				t.Errorf("got %v %s: %s; want %v %s with %q", p.Status, p.Reason, p.Message, c.status, c.reason, c.says)
			}
			if again := s.Check(); *again != *p {
				t.Errorf("another answer the second time: %v", again)
			}
		})
	}
}

func TestUsable(t *testing.T) {
	parse := func(s string) *Service {
		var list []Endpoint
		for i, c := range s {
			e := Endpoint{ID: uint64(i + 1), Name: string(c), Weight: 1}
			switch c {
			case 's':
				e.State = Suspect
			case 'd':
				e.State = Draining
			case '0':
				e.Weight = 0
			case 'o':
				e.State, e.Weight = Suspect, 0
			}
			list = append(list, e)
		}
		return &Service{Endpoints: NewEndpoints(list...)}
	}
	// r ready, s suspect, d draining, 0 ready with weight 0, o suspect with weight 0
	for in, want := range map[string]string{
		"":       "",
		"r":      "r",
		"s":      "s",   // better a suspect than nobody
		"ss":     "ss",  //
		"rs":     "r",   // half are better
		"rss":    "rss", // less than half are
		"rrss":   "rr",  //
		"rrsss":  "rrsss",
		"d":      "",     // nobody
		"dr":     "r",    //
		"ds":     "s",    // those that drain do not count
		"ddrs":   "r",    //
		"0":      "",     //
		"0s":     "s",    // nor do those of weight 0
		"0rs":    "r",    //
		"or":     "r",    //
		"ors":    "r",    //
		"dsrsds": "srss", // in order
	} {
		got := ""
		for _, e := range parse(in).Usable() {
			got += e.Name
		}
		if got != want {
			t.Errorf("of %q %q are usable, want %q", in, got, want)
		}
	}
}
