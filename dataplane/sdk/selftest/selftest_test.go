package selftest

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
)

func anywhere() netip.AddrPort { return netip.MustParseAddrPort("127.0.0.1:0") }

func TestFrontends(t *testing.T) {
	seen := map[netip.AddrPort]string{}
	names := []string{"a", "b", "nftables a", "", "broadcast 20714"} // the last has 255.255 as its hash
	for _, name := range names {
		f := Frontend(name)
		if f != Frontend(name) || seen[f] != "" {
			t.Errorf("%q has %v, which %q has", name, f, seen[f])
		}
		seen[f] = name
		a := f.Addr().As4()
		if a[0] != 127 || a[1] != 255 || a[3] == 0 || a[3] == 255 && a[2] == 255 || f.Port() != Port {
			t.Errorf("%q has %v", name, f)
		}
	}
}

// Where nothing leads connections, a dial of the target arrives and one of the
// frontend does not.
func TestDial(t *testing.T) {
	target, err := Listen(anywhere())
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	for range 3 {
		if err := Dial(t.Context(), target.Addr()); err != nil {
			t.Fatal(err)
		}
	}
	frontend := Frontend(t.Name())
	if err := Dial(t.Context(), frontend); !errors.Is(err, ErrNotLed) || !strings.Contains(err.Error(), frontend.String()) {
		t.Fatalf("got %v", err)
	}
}

// The process before has the address until it ends, and then the next one does.
func TestTakesOver(t *testing.T) {
	first, err := Listen(anywhere())
	if err != nil {
		t.Fatal(err)
	}
	second, err := Listen(first.Addr())
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	if err := Dial(t.Context(), second.Addr()); err != nil {
		t.Fatal(err)
	}
	second.Close()
	if err := Dial(t.Context(), second.Addr()); !errors.Is(err, ErrNotLed) {
		t.Fatalf("a closed target: %v", err)
	}
}

func TestAddressThatIsTaken(t *testing.T) {
	l, err := net.Listen("tcp4", anywhere().String())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if target, err := Listen(l.Addr().(*net.TCPAddr).AddrPort()); err == nil {
		target.Close()
		t.Fatal("listens where another does, who does not share")
	}
}
