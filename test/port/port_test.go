package port

import (
	"net"
	"net/netip"
	"testing"
)

func TestFree(t *testing.T) {
	first, err := given()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for range 50 {
		address := Free(t)
		at, err := netip.ParseAddrPort(address)
		if err != nil || int(at.Port()) < lowest || int(at.Port()) >= first {
			t.Fatalf("%s, %v: want a port from %d to %d", address, err, lowest, first-1)
		}
		if seen[address] {
			t.Fatalf("%s was picked twice while it was in use", address)
		}
		seen[address] = true
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
}
