package bench

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/netns"
)

// plan is how much is measured.
type plan struct {
	members int
	settle  time.Duration // from complete tables to the first window: rumours end, buffers empty
	window  time.Duration

	trials, massTrials int // crashes of one, and of a fifth at once

	// smoke is for numbers that mean nothing: no judgement, and a peer in a hurry.
	smoke bool
}

// planned returns the full plan when FAIRLEAD_BENCH_WINDOW says how long a
// window lasts, and otherwise the least that runs all of the code.
func planned(t *testing.T) plan {
	text := os.Getenv("FAIRLEAD_BENCH_WINDOW")
	if text == "" {
		return plan{members: 4, settle: 200 * time.Millisecond, window: 500 * time.Millisecond, trials: 1, massTrials: 1, smoke: true}
	}
	window, err := time.ParseDuration(text)
	if err != nil || window <= 0 {
		t.Fatalf("FAIRLEAD_BENCH_WINDOW is %q: want a duration such as 60s", text)
	}
	return plan{members: 30, settle: 15 * time.Second, window: window, trials: 9, massTrials: 5}
}

// TestMembership measures what belonging to a fleet costs and how soon
// failures are seen. It fails when something does not work, never because of
// a number.
func TestMembership(t *testing.T) {
	p := planned(t)
	topo := netns.New(t, netns.Options{Nodes: 2})
	dir, err := os.MkdirTemp("", "fl-bench-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	agents := newFleet(t, fairlead{build(t, "FAIRLEAD_BIN", "../..", "./cmd/fairlead"), dir}, topo.Node(0), p.members)
	peer := memberlist{binary: build(t, "", ".", "./memberlistpeer")}
	if p.smoke {
		peer.probe = 100 * time.Millisecond
	}
	peers := newFleet(t, peer, topo.Node(1), p.members)

	none := math.NaN()
	agentsAll, agentsJoin := agents.join()
	peersAll, peersJoin := peers.join()
	rows := []row{
		{"start and join of all through one seed, s", "%.2f", agentsAll.Seconds(), peersAll.Seconds(), none, bar{}},
		{"of it after the last process was up, s", "%.2f", agentsJoin.Seconds(), peersJoin.Seconds(), none, bar{}},
	}
	pause(p.settle)
	rows = append(rows, idle(t, p, agents, peers)...)
	rows = append(rows, crashes(t, p, agents, peers)...)

	var wrong [2]float64
	for i, f := range []*fleet{agents, peers} {
		n, err := f.wronged()
		if err != nil {
			t.Fatal(err)
		}
		wrong[i] = float64(n)
	}
	rows = append(rows, row{"running members called dead", "%.0f", wrong[0], wrong[1], none, bar{}})

	if p.smoke {
		for i := range rows {
			rows[i].bar = bar{}
		}
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%d members each, windows of %v, medians of %d crashes and %d mass crashes, %s, %d CPUs, %s\n\n",
		p.members, p.window, p.trials, p.massTrials, time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), runtime.Version())
	if err := print(&out, rows); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", out.String())
	for _, r := range rows {
		if r.over() {
			t.Logf("OVER the bar: %s", r.work)
		}
	}
}

// idle measures two windows of both fleets at once.
func idle(t *testing.T, p plan, agents, peers *fleet) []row {
	t.Helper()
	read := func(f *fleet) usage {
		u, err := f.usage()
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	var a, b [3]usage
	for i := range a {
		if i > 0 {
			pause(p.window)
		}
		a[i], b[i] = read(agents), read(peers)
	}
	first, second := a[1].since(a[0], p.members), a[2].since(a[1], p.members)
	peer := b[1].since(b[0], p.members)

	resident, private, err := agents.memory()
	if err != nil {
		t.Fatal(err)
	}
	peerResident, peerPrivate, err := peers.memory()
	if err != nil {
		t.Fatal(err)
	}
	none := math.NaN()
	return []row{
		{"idle: bytes sent per agent and s", "%.0f", first.bytes, peer.bytes, second.bytes, bar{number: 230}},
		{"idle: packets sent per agent and s", "%.2f", first.packets, peer.packets, second.packets, bar{number: 2.4}},
		{"idle: CPU ms per agent and s", "%.2f", first.cpu, peer.cpu, second.cpu, bar{number: 1.3}},
		{"idle: thread wake-ups per agent and s", "%.1f", first.wakeups, peer.wakeups, second.wakeups, bar{}},
		{"idle: resident MiB", "%.1f", resident, peerResident, none, bar{}},
		{"idle: private MiB", "%.1f", private, peerPrivate, none, bar{}},
	}
}

// crashes kills single members, then a fifth of all, in both fleets at once.
func crashes(t *testing.T, p plan, agents, peers *fleet) []row {
	t.Helper()
	fleets := []*fleet{agents, peers}
	var first, last, mass [2][]float64
	kill := func(from, to int) (victims [2][]*member) {
		for i, f := range fleets {
			victims[i] = f.members[from:to]
			for _, v := range victims[i] {
				v.kill()
			}
		}
		return victims
	}
	for trial := range p.trials {
		at := 1 + trial%(p.members-1) // the seed stays
		victims := kill(at, at+1)
		for i, f := range fleets {
			a, b := f.span(victims[i][0].killed, "the crash is seen", f.running(), lost(victims[i]))
			first[i], last[i] = append(first[i], a.Seconds()), append(last[i], b.Seconds())
			t.Logf("%v: crash %d of %d seen after %.2f to %.2f s", f, trial+1, p.trials, a.Seconds(), b.Seconds())
			f.revive()
		}
	}
	fifth := max(1, p.members/5)
	for trial := range p.massTrials {
		victims := kill(p.members-fifth, p.members)
		for i, f := range fleets {
			took := f.last(victims[i][0].killed, "the mass crash is seen", f.running(), lost(victims[i])).Seconds()
			mass[i] = append(mass[i], took)
			t.Logf("%v: mass crash %d of %d seen after %.2f s", f, trial+1, p.massTrials, took)
			f.revive()
		}
	}

	none := math.NaN()
	return []row{
		{"crash of one: first sees it dead, s", "%.2f", median(first[0]), median(first[1]), none, bar{share: 0.5}},
		{"crash of one: last sees it dead, s", "%.2f", median(last[0]), median(last[1]), none, bar{share: 0.5}},
		{"crash of one: last sees it dead, slowest trial, s", "%.2f", slices.Max(last[0]), slices.Max(last[1]), none, bar{}},
		{fmt.Sprintf("crash of %d at once: last sees all dead, s", fifth), "%.2f", median(mass[0]), median(mass[1]), none, bar{share: 1.0 / 3}},
	}
}

// pause lets the fleets run: the measurement is of time itself.
func pause(d time.Duration) { <-time.After(d) }
