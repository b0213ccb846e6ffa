package transfer

import (
	"math"
	"net/netip"
	"testing"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

func TestAddresses(t *testing.T) {
	for s, n := range map[string]int{"10.0.0.1:80": 6, "[fd00::1]:65535": 18, "0.0.0.0:0": 6} {
		a := netip.MustParseAddrPort(s)
		b := AppendAddr([]byte("x"), a)
		if len(b) != n+1 || ParseAddr(b[1:]) != a {
			t.Errorf("%s is %x, which is %v", s, b, ParseAddr(b[1:]))
		}
	}
	if got := ParseAddr(AppendAddr(nil, netip.MustParseAddrPort("[::ffff:10.0.0.1]:80"))); got != netip.MustParseAddrPort("10.0.0.1:80") {
		t.Errorf("IPv4 in IPv6 is %v", got)
	}
	for n := range 40 {
		if got := ParseAddr(make([]byte, n)); got.IsValid() != (n == 6 || n == 18) {
			t.Errorf("%d bytes are %v", n, got)
		}
	}
	// An address that is none must not look as if it was left out.
	if b := encodeEndpoint(dataplane.Endpoint{ID: 1}).Address; len(b) == 0 || ParseAddr(b).IsValid() {
		t.Errorf("no address is %x", b)
	}
}

func TestNumbersAreClamped(t *testing.T) {
	many := uint32(1 << 20)
	if e := decodeEndpoint(&pb.Endpoint{Weight: &many}); e.Weight != math.MaxUint16 {
		t.Errorf("weight %d", e.Weight)
	}
	if e := decodeEndpoint(&pb.Endpoint{}); e.Weight != 1 {
		t.Errorf("an absent weight is %d", e.Weight)
	}
	for in, want := range map[int32]dataplane.Protocol{-1: unknownValue, 0: 0, 1: 1, 254: 254, 255: unknownValue, 256: unknownValue, 257: unknownValue, math.MaxInt32: unknownValue} {
		if got := enum[dataplane.Protocol](in); got != want {
			t.Errorf("value %d of an enum becomes %d", in, got)
		}
	}
}
