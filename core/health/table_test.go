package health

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/scale"
)

var (
	epoch  = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	listen = netip.MustParseAddrPort("127.0.0.1:9001")
)

func half() float64 { return 0.5 }

// pass and fail are outcomes.
var (
	pass = outcome{result: resultPass, output: "fine"}
	fail = outcome{result: resultRefused, output: "refused"}
)

// probeAll lets everything due at now end with out, and returns how many.
func probeAll(tb *table, now time.Time, out outcome) int {
	n := 0
	for e := tb.take(now, true); e != nil; e = tb.take(now, true) {
		tb.finish(e, out, now, 0.5)
		n++
	}
	return n
}

func TestFirstProbesAreSpread(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for _, interval := range []time.Duration{MinInterval, 2 * time.Second, time.Minute} {
		tb := newTable(memory{})
		var list []Instance
		for i := range 3000 {
			list = append(list, Instance{Key: keyOf(fmt.Sprint(i)), Addr: listen, Checks: []Check{{Kind: TCP, Interval: interval}}})
		}
		tb.set(list, epoch, rnd.Float64)
		window := min(interval, time.Second)
		mean := 3000 / 10
		for i := range 10 {
			n := probeAll(tb, epoch.Add(window*time.Duration(i+1)/10), pass)
			if n < mean/2 || n > mean*2 {
				t.Errorf("interval %s: %d first probes in the %d. tenth of %s, want about %d", interval, n, i+1, window, mean)
			}
		}
		if tb.passingInstances != 3000 {
			t.Errorf("interval %s: %d passed once within %s, want all", interval, tb.passingInstances, window)
		}
	}
}

// Checks of a long interval are not left crowded in the second in which they
// began.
func TestLongIntervalsSpreadFurther(t *testing.T) {
	const interval, checks = 20 * time.Second, 2000
	rnd := rand.New(rand.NewPCG(1, 1))
	tb := newTable(memory{})
	var list []Instance
	for i := range checks {
		list = append(list, Instance{Key: keyOf(fmt.Sprint(i)), Addr: listen, Checks: []Check{{Kind: TCP, Interval: interval}}})
	}
	tb.set(list, epoch, rnd.Float64)
	most := 0
	for at := time.Duration(0); at < 10*interval; at += time.Second {
		n := 0
		now := epoch.Add(at)
		for e := tb.take(now, true); e != nil; e = tb.take(now, true) {
			tb.finish(e, pass, now, rnd.Float64())
			n++
		}
		if at > 2*interval {
			most = max(most, n)
		}
	}
	if limit := 3 * checks / 20; most > limit {
		t.Errorf("up to %d probes in a second, want at most %d", most, limit)
	}
}

func TestProbesKeepTheirRate(t *testing.T) {
	for _, test := range []struct {
		name       string
		first      bool
		interval   time.Duration
		late       time.Duration // from when it was due to its end
		least, top time.Duration // of the next, after it was due
	}{
		{"in time", false, 2 * time.Second, 10 * time.Millisecond, 2 * time.Second, 2 * time.Second},
		{"as long as the interval", false, 2 * time.Second, 2 * time.Second, 2 * time.Second, 2 * time.Second},
		{"longer than the interval", false, 2 * time.Second, 3 * time.Second, 3 * time.Second, 3 * time.Second},
		{"hours late", false, 2 * time.Second, time.Hour, time.Hour, time.Hour + 2*time.Second},
		{"the second of a short interval", true, time.Second, 0, time.Second, time.Second},
		{"the second of a long interval", true, 10 * time.Second, 0, 5 * time.Second, 10 * time.Second},
	} {
		for _, u := range []float64{0, 0.3, 0.999} {
			got := nextDue(epoch, epoch.Add(test.late), test.interval, test.first, u).Sub(epoch)
			if got < test.least || got > test.top {
				t.Errorf("%s: the next is due after %s, want %s to %s", test.name, got, test.least, test.top)
			}
		}
	}
}

func TestSetKeepsWhatStaysTheSame(t *testing.T) {
	base := Check{Kind: HTTP, Path: "/healthz", Interval: 2 * time.Second, Timeout: time.Second}
	other := netip.MustParseAddrPort("127.0.0.1:9002")
	for _, test := range []struct {
		name   string
		change func(*Instance)
		kept   bool
	}{
		{"nothing", func(*Instance) {}, true},
		{"interval", func(in *Instance) { in.Checks[0].Interval = 5 * time.Second }, true},
		{"timeout", func(in *Instance) { in.Checks[0].Timeout = 2 * time.Second }, true},
		{"thresholds", func(in *Instance) { in.Checks[0].SuccessBeforePassing, in.Checks[0].FailuresBeforeCritical = 3, 3 }, true},
		{"path", func(in *Instance) { in.Checks[0].Path = "/ready" }, false},
		{"kind", func(in *Instance) { in.Checks[0].Kind = TCP }, false},
		{"address", func(in *Instance) { in.Addr = other }, false},
		{"address of the check", func(in *Instance) { in.Checks[0].Address = other }, false},
		{"a further check", func(in *Instance) { in.Checks = append(in.Checks, Check{Kind: TCP, Interval: time.Second}) }, false},
		{"the same check twice", func(in *Instance) { in.Checks = append(in.Checks, base) }, false},
		{"no check", func(in *Instance) { in.Checks = nil }, true},
		{"bad interval", func(in *Instance) { in.Checks[0].Interval = 0 }, false},
		{"name", func(in *Instance) { in.Key.ID = "b" }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			tb := newTable(memory{})
			in := Instance{Key: keyOf("a"), Addr: listen, Checks: []Check{base}}
			tb.set([]Instance{in}, epoch, half)
			if n := probeAll(tb, epoch.Add(time.Second), pass); n != 1 || tb.passingInstances != 1 {
				t.Fatalf("%d probes made %d instances passing", n, tb.passingInstances)
			}
			in.Checks = slices.Clone(in.Checks)
			test.change(&in)
			tb.set([]Instance{in}, epoch.Add(1200*time.Millisecond), half)
			if got := tb.instances[in.Key].passing(); got != test.kept {
				t.Errorf("passing is %v, want %v", got, test.kept)
			}
			if len(in.Checks) > 1 && !tb.instances[in.Key].entries[0].verdict.passing {
				t.Errorf("the check that stayed lost its verdict")
			}
			checkTable(t, tb)
		})
	}
}

func TestAShorterIntervalBeginsAtOnce(t *testing.T) {
	tb := newTable(memory{})
	in := Instance{Key: keyOf("a"), Addr: listen, Checks: []Check{{Kind: TCP, Interval: time.Hour}}}
	tb.set([]Instance{in}, epoch, half)
	probeAll(tb, epoch.Add(time.Second), pass)
	in.Checks = []Check{{Kind: TCP, Interval: time.Second}}
	ch := tb.set([]Instance{in}, epoch.Add(2*time.Second), half)
	if due, _ := tb.next(true); !ch.nextEarlier || due.Sub(epoch) > 3*time.Second {
		t.Errorf("the next probe is due after %s (%+v), want within a second of the change", due.Sub(epoch), ch)
	}
}

func TestABadCheckNeverPassesAndSaysWhy(t *testing.T) {
	for _, test := range []struct {
		name string
		in   Instance
		want string
	}{
		{"kind", Instance{Addr: listen, Checks: []Check{{Interval: time.Second}}}, "set http, tcp or grpc"},
		{"interval", Instance{Addr: listen, Checks: []Check{{Kind: TCP}}}, "interval"},
		{"timeout", Instance{Addr: listen, Checks: []Check{{Kind: TCP, Interval: time.Second, Timeout: time.Minute}}}, "overlap"},
		{"thresholds", Instance{Addr: listen, Checks: []Check{{Kind: TCP, Interval: time.Second, SuccessBeforePassing: -1}}}, "success_before_passing"},
		{"thresholds", Instance{Addr: listen, Checks: []Check{{Kind: TCP, Interval: time.Second, FailuresBeforeCritical: 101}}}, "failures_before_critical"},
		{"path", Instance{Addr: listen, Checks: []Check{{Kind: HTTP, Path: "/a\r\nHost: b", Interval: time.Second}}}, "path"},
		{"service", Instance{Addr: listen, Checks: []Check{{Kind: GRPC, Service: "\xff", Interval: time.Second}}}, "gRPC service"},
		{"address", Instance{Addr: netip.AddrPort{}, Checks: []Check{{Kind: TCP, Interval: time.Second}}}, "address"},
		{"check's address", Instance{Addr: listen, Checks: []Check{{Kind: TCP, Address: netip.MustParseAddrPort("0.0.0.0:1"), Interval: time.Second}}}, "address"},
	} {
		t.Run(test.name, func(t *testing.T) {
			tb := newTable(memory{})
			test.in.Key = keyOf("a")
			tb.set([]Instance{test.in}, epoch, half)
			if n := probeAll(tb, epoch.Add(time.Hour), pass); n != 0 {
				t.Errorf("it was probed %d times", n)
			}
			s := tb.instances[test.in.Key].status()
			if s.Passing || !strings.Contains(s.Checks[0].Output, test.want) {
				t.Errorf("it is %+v, want critical and %q", s, test.want)
			}
			if ch := tb.set([]Instance{test.in}, epoch, half); ch != (changes{}) {
				t.Errorf("setting it again changed %+v", ch)
			}
			test.in.Addr, test.in.Checks = listen, []Check{{Kind: TCP, Interval: time.Second}}
			tb.set([]Instance{test.in}, epoch, half)
			if probeAll(tb, epoch.Add(time.Hour), pass); tb.passingInstances != 1 {
				t.Errorf("once mended it does not pass")
			}
		})
	}
}

func TestParseHTTP(t *testing.T) {
	for _, test := range []struct {
		target string
		addr   netip.AddrPort
		path   string
	}{
		{"/healthz", netip.AddrPort{}, "/healthz"},
		{"/a?b=c", netip.AddrPort{}, "/a?b=c"},
		{"http://127.0.0.1:9001/healthz", listen, "/healthz"},
		{"http://127.0.0.1:9001", listen, "/"},
		{"http://[::1]:9001/a/b", netip.MustParseAddrPort("[::1]:9001"), "/a/b"},
	} {
		if got, err := ParseHTTP(test.target); err != nil || got != (Check{Kind: HTTP, Address: test.addr, Path: test.path}) {
			t.Errorf("%q is %+v, %v", test.target, got, err)
		}
	}
	for _, target := range []string{"", "healthz", "/a b", "/a#b", "/ä", "https://127.0.0.1:1/", "http://web/", "http://127.0.0.1/", "http://0.0.0.0:1/", "/" + strings.Repeat("a", MaxTargetBytes)} {
		if got, err := ParseHTTP(target); !errors.Is(err, ErrCheck) {
			t.Errorf("%.40q is %+v, %v, want ErrCheck", target, got, err)
		}
	}
}

// checkTable holds the table to its invariants.
func checkTable(t *testing.T, tb *table) {
	t.Helper()
	checks, passing, instances, waiting := 0, 0, 0, 0
	for key, in := range tb.instances {
		critical := 0
		for _, e := range in.entries {
			checks++
			if e.verdict.passing {
				passing++
			} else {
				critical++
			}
			if e.place >= 0 {
				waiting++
			}
			if usable := !strings.Contains(e.id, "(bad)"); e.of != in || (e.place >= 0) == e.running && usable || e.place >= 0 && (*tb.queueOf(e))[e.place] != e {
				t.Fatalf("%s: entry %+v", key, e)
			}
		}
		if critical == 0 {
			instances++
		}
		if in.critical != critical {
			t.Fatalf("%s counts %d critical checks, has %d", key, in.critical, critical)
		}
	}
	if checks != tb.checks || passing != tb.passingChecks || instances != tb.passingInstances || waiting != len(tb.waiting)+len(tb.patient) {
		t.Fatalf("the table counts %d checks, %d passing, %d instances passing and %d waiting, has %d, %d, %d, %d",
			tb.checks, tb.passingChecks, tb.passingInstances, len(tb.waiting)+len(tb.patient), checks, passing, instances, waiting)
	}
}

// The twin keeps, for each instance and check, only the definition and its
// verdict; the table has to tell the same whatever is set and probed in between.
func TestTableIsItsTwin(t *testing.T) {
	type twinKey struct {
		key InstanceKey
		id  string
	}
	for seed := range uint64(scale.N(1000)) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		tb, twin := newTable(memory{}), map[twinKey]verdict{}
		var list []Instance
		now := epoch
		var running []*entry
		for range 80 {
			now = now.Add(time.Duration(rnd.IntN(700)) * time.Millisecond)
			switch rnd.IntN(4) {
			case 0:
				list = list[:0:0]
				next := map[twinKey]verdict{}
				for i := range rnd.IntN(6) {
					in := Instance{Key: keyOf(fmt.Sprint(i)), Addr: netip.AddrPortFrom(listen.Addr(), uint16(9000+rnd.IntN(2)))}
					for range rnd.IntN(4) {
						in.Checks = append(in.Checks, Check{
							Kind: Kind(1 + rnd.IntN(3)), Path: "/", Interval: time.Duration(1+rnd.IntN(3)) * time.Second,
							SuccessBeforePassing: rnd.IntN(3), FailuresBeforeCritical: rnd.IntN(3),
						})
					}
					list = append(list, in)
					for _, id := range identities(in) {
						next[twinKey{in.Key, id}] = twin[twinKey{in.Key, id}]
					}
				}
				before := tb.passingOf()
				ch := tb.set(list, now, rnd.Float64)
				if after := tb.passingOf(); before != after && !ch.instances {
					t.Fatalf("seed %d: set changed %s to %s and does not tell", seed, before, after)
				}
				twin = next
			case 1, 2:
				if e := tb.take(now, true); e != nil {
					running = append(running, e)
				}
			case 3:
				if len(running) == 0 {
					continue
				}
				i := rnd.IntN(len(running))
				e := running[i]
				running = slices.Delete(running, i, i+1)
				out := fail
				if rnd.IntN(2) == 0 {
					out = pass
				}
				if in := e.of; in != nil {
					v := twin[twinKey{in.key, e.id}]
					v.observe(out.ok(), e.check)
					twin[twinKey{in.key, e.id}] = v
				}
				before := tb.passingOf()
				ch := tb.finish(e, out, now, rnd.Float64())
				if after := tb.passingOf(); (before != after) != ch.instances {
					t.Fatalf("seed %d: an outcome changed %s to %s and tells %+v", seed, before, after, ch)
				}
			}
			checkTable(t, tb)
			for _, in := range list {
				want := true
				for _, id := range identities(in) {
					want = want && twin[twinKey{in.Key, id}].passing
				}
				if got := tb.instances[in.Key].passing(); got != want {
					t.Fatalf("seed %d: %s is passing=%v, its twin %v", seed, in.Key, got, want)
				}
			}
			if len(tb.instances) != len(list) {
				t.Fatalf("seed %d: %d instances, want %d", seed, len(tb.instances), len(list))
			}
		}
	}
}

// passingOf is which instances there are and pass, as text.
func (t *table) passingOf() string {
	var all []string
	for key, in := range t.instances {
		all = append(all, fmt.Sprint(key, in.passing()))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func TestOfTwoWithOneKeyTheFirstCounts(t *testing.T) {
	tb := newTable(memory{})
	tb.set([]Instance{
		{Key: keyOf("a"), Addr: listen, Checks: []Check{{Kind: TCP, Interval: time.Second}}},
		{Key: keyOf("a"), Addr: listen},
	}, epoch, half)
	if len(tb.instances[keyOf("a")].entries) != 1 {
		t.Errorf("it is %+v", tb.instances[keyOf("a")])
	}
	checkTable(t, tb)
}
