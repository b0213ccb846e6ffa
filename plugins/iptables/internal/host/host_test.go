package host

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/netns"
)

func TestMain(m *testing.M) { os.Exit(netns.Main(m)) }

func TestParseVersion(t *testing.T) {
	for _, c := range []struct {
		text    string
		version [3]int
		variant Variant
		bad     bool
	}{
		{text: "iptables v1.8.9 (nf_tables)\n", version: [3]int{1, 8, 9}, variant: NFT},
		{text: "iptables v1.8.10 (legacy)", version: [3]int{1, 8, 10}, variant: Legacy},
		{text: "iptables v1.6.1", version: [3]int{1, 6, 1}, variant: Legacy},
		{text: "iptables v1.9.0 (other)", bad: true},
		{text: "busybox", bad: true},
	} {
		version, variant, err := parseVersion(c.text)
		if (err != nil) != c.bad || !c.bad && (version != c.version || variant != c.variant) {
			t.Errorf("%q: %v, %q, %v", c.text, version, variant, err)
		}
	}
}

func TestHolder(t *testing.T) {
	const locks = `1: POSIX  ADVISORY  WRITE 77 00:1a:42 0 EOF
2: FLOCK  ADVISORY  WRITE 4711 00:18:4242 0 EOF
2: -> FLOCK  ADVISORY  WRITE 4712 00:18:4242 0 EOF
`
	if pid, ok := holder(locks, 4242); pid != 4711 || !ok {
		t.Errorf("%d, %v; want 4711", pid, ok)
	}
	if _, ok := holder(locks, 1); ok {
		t.Error("a file that nobody locked is held")
	}
}

// TestRunIsBounded: a process that does not end is killed when the time is over, with
// the processes that it started.
func TestRunIsBounded(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // when both run
		for ctx.Err() == nil {
			if b, _ := os.ReadFile(pids); strings.Count(string(b), "\n") == 2 {
				cancel()
			}
			<-time.After(time.Millisecond)
		}
	}()
	_, err := Run(ctx, Command{Path: "/bin/sh", Args: []string{"-c", `sleep 3600 & echo $! >"$0.new"; echo $$ >>"$0.new"; mv "$0.new" "$0"; wait`, pids}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want it canceled", err)
	}
	b, _ := os.ReadFile(pids)
	for text := range strings.Lines(string(b)) {
		pid, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			t.Fatal(err)
		}
		netns.Eventually(t, await.Patience, func() bool {
			stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
			return err != nil || strings.Contains(string(stat), ") Z ")
		}, "process %d to be gone", pid)
	}
}

func TestCauses(t *testing.T) {
	for _, c := range []struct {
		script string
		want   error
	}{
		{`echo "Another app is currently holding the xtables lock; still 4s 0us time ahead" >&2; exit 4`, ErrLocked},
		{`echo "iptables v1.8.9 (nf_tables): Could not fetch rule set generation id: Permission denied (you must be root)" >&2; exit 4`, ErrForbidden},
		{"echo \"iptables v1.8.9 (legacy): can't initialize iptables table \\`nat': Table does not exist (do you need to insmod?)\" >&2; exit 3", ErrAbsent},
	} {
		_, err := Run(t.Context(), Command{Path: "/bin/sh", Args: []string{"-c", c.script}})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.script, err, c.want)
		}
	}
	if _, err := Run(t.Context(), Command{Path: "/bin/sh", Args: []string{"-c", "echo line 3 failed >&2; exit 1"}}); err == nil || !strings.Contains(err.Error(), "line 3 failed") {
		t.Errorf("%v does not say what the process said", err)
	}
}

// TestFingerprint: it changes with a change of the table, and with nothing else.
func TestFingerprint(t *testing.T) {
	netns.Isolated(t)
	for _, v := range []Variant{Legacy, NFT} {
		for _, f := range []Family{V4, V6} {
			command := map[Family]string{V4: "iptables-", V6: "ip6tables-"}[f] + string(v)
			run := func(args ...string) {
				t.Helper()
				if out, err := exec.Command(command, append([]string{"-w", "20", "-t", "nat"}, args...)...).CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
			}
			run("-N", "FINGER")
			before, err := v.Take(f)
			if err != nil {
				t.Fatal(err)
			}
			run("-S")
			if same, err := v.Take(f); err != nil || same != before {
				t.Errorf("%s %v: listed, it is %v, %v; was %v", v, f, same, err, before)
			}
			run("-A", "FINGER", "-j", "RETURN")
			if other, err := v.Take(f); err != nil || other == before {
				t.Errorf("%s %v: with a rule more it is still %v, %v", v, f, other, err)
			}
			run("-F", "FINGER")
			run("-X", "FINGER")
		}
	}
}

// TestRoutes: the VIPs have routes, those of another table stay, and all of ours go.
func TestRoutes(t *testing.T) {
	netns.Isolated(t)
	one, two := NewRoutes(1), NewRoutes(2)
	four, six := netip.MustParseAddr("10.200.0.1"), netip.MustParseAddr("fd00:200::1")
	set := func(r Routes, want int, vips ...netip.Addr) {
		t.Helper()
		if n, err := r.Set(vips); n != want || err != nil {
			t.Errorf("%d changes, %v; want %d", n, err, want)
		}
		if have, err := r.VIPs(); !slices.Equal(have, vips) || err != nil {
			t.Errorf("the kernel has routes to %v, %v; want %v", have, err, vips)
		}
	}
	reaches := func(a netip.Addr, want bool) {
		t.Helper()
		if got, err := Reachable(a); got != want || err != nil {
			t.Errorf("%v is reached: %v, %v; want %v", a, got, err, want)
		}
	}
	reaches(four, false)
	set(one, 4, four, six)
	set(one, 0, four, six)
	set(two, 2, four)
	reaches(four, true)
	reaches(six, true)
	if alone, err := ReachableAlone(four); alone || err != nil {
		t.Errorf("the route of a data plane is taken for one of the host: %v, %v", alone, err)
	}
	if alone, err := ReachableAlone(netip.MustParseAddr("127.1.2.3")); !alone || err != nil {
		t.Errorf("a route of the host is not taken for one: %v, %v", alone, err)
	}
	if found, err := FindRoutes(); err != nil || !slices.Equal(found, []Routes{one, two}) {
		t.Errorf("found are %v, %v", found, err)
	}
	if objects, err := one.Objects(); err != nil || len(objects) != 4 {
		t.Errorf("objects are %v, %v", objects, err)
	}
	set(one, 4)
	reaches(four, true)
	reaches(six, false)
	set(two, 2)
	reaches(four, false)
}
