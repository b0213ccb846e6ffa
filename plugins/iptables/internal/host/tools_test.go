package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/netns"
)

// TestTools: the binaries of both variants are found by themselves, what is restored is
// what is saved, and only in the variant's own tables; without any it says so.
func TestTools(t *testing.T) {
	netns.Isolated(t)
	t.Setenv("XTABLES_LOCKFILE", filepath.Join(t.TempDir(), "lock"))
	found, err := FindTools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []Variant{Legacy, NFT} {
		tools, installed := found[v]
		if !installed || !tools.HasV6() || !strings.Contains(tools.String(), string(v)) || tools.Command(V4) == tools.Command(V6) {
			t.Fatalf("of %s there is %v", v, tools)
		}
		for _, f := range []Family{V4, V6} {
			chain := ":TOOLS-" + strings.ToUpper(string(v))
			if err := tools.Restore(t.Context(), f, []byte("*nat\n"+chain+" - [0:0]\nCOMMIT\n"), time.Second); err != nil {
				t.Errorf("%s %v: %v", v, f, err)
			}
			for _, variant := range []Variant{v, v.Other()} {
				text, err := found[variant].Save(t.Context(), f, "nat")
				if has := strings.Contains(text, chain); err != nil || has != (variant == v) {
					t.Errorf("restored with %s %v, the nat table of %s has it: %v, %v", v, f, variant, has, err)
				}
			}
			if text, err := tools.SaveAll(t.Context(), f); err != nil || !strings.Contains(text, chain) {
				t.Errorf("all tables of %s %v: %v\n%s", v, f, err, text)
			}
			if err := tools.Restore(t.Context(), f, []byte("*nat\n-X "+chain[1:]+"\nCOMMIT\n"), time.Second); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestLock: who holds the lock is named, and nobody else gets it.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	t.Setenv("XTABLES_LOCKFILE", path)
	if who := LockHolder(); who != "" {
		t.Errorf("a lock that is not there is held by %s", who)
	}
	if err := TryLock(t.Context(), time.Second); err != nil {
		t.Errorf("a free lock: %v", err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if err := TryLock(t.Context(), time.Millisecond); !errors.Is(err, ErrLocked) {
		t.Errorf("a lock that is held: %v", err)
	}
	if who := LockHolder(); !strings.Contains(who, fmt.Sprintf("(process %d)", os.Getpid())) {
		t.Errorf("held by process %d it is held by %q", os.Getpid(), who)
	}
}

// TestSettings: what is said of the kernel is what its files say, and of none nothing.
func TestSettings(t *testing.T) {
	netns.Isolated(t)
	for _, c := range []struct {
		path string
		is   func() bool
	}{
		{"ipv4/conf/all/route_localnet", RouteLocalnet},
		{"ipv4/ip_forward", func() bool { return Forwards(V4) }},
		{"ipv6/conf/all/forwarding", func() bool { return Forwards(V6) }},
		{"ipv4/conf/all/rp_filter", StrictPathFilter},
	} {
		text, err := os.ReadFile("/proc/sys/net/" + c.path)
		if want := strings.TrimSpace(string(text)) == "1"; err != nil || c.is() != want {
			t.Errorf("%s: %v, the file says %q, %v", c.path, c.is(), text, err)
		}
	}
	if Sysctl("net/no/such") != "" {
		t.Error("a setting that is not there has a value")
	}
	six := false
	Apart(func() { six = HasIPv6() })
	if !six {
		t.Error("a namespace has no IPv6")
	}
}
