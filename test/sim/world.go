package sim

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// tickJitter is how late a scheduler may run a process whose timer fired.
const tickJitter = 3 * time.Millisecond

// World is a cluster in virtual time. Nothing in it runs by itself: Run moves
// the clock.
//
// Invariant: every choice comes from rng, and no order from a map, so that a
// seed decides all of it.
type World struct {
	Seed  uint64
	Cfg   swim.Config
	Tally *Tally
	Trace *Trace

	rng     *rand.Rand
	codec   wire.Codec
	now     time.Duration // since Epoch
	events  eventHeap
	nextSeq uint64

	procs   []*Process // all that ever were, in order of birth
	listens map[netip.AddrPort]*Process
	hosts   []*Host
	hostOf  map[netip.AddrPort]*Host // which host has the address now
	weather Weather

	history    *History
	invariants []Invariant
	calm       bool     // no fault is at work and the live agree: nobody may be suspected
	meeting    bool     // the sides of a partition meet again: nobody may be declared dead
	restarts   *Process // it stopped after an announcement that all heard: nobody may suspect it
	finding    *Finding
	lastID     model.NodeID
	lastHost   int
}

// Epoch is when virtual time begins. The date has no meaning.
func Epoch() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// NewWorld returns an empty world with perfect weather.
func NewWorld(seed uint64, cfg swim.Config, tally *Tally) *World {
	w := &World{
		Seed: seed, Cfg: cfg, Tally: tally, Trace: newTrace(),
		rng:        rand.New(rand.NewPCG(seed, 0x5eed)),
		codec:      wire.NewCodec(cfg.Cluster),
		listens:    map[netip.AddrPort]*Process{},
		hostOf:     map[netip.AddrPort]*Host{},
		weather:    Calm(),
		history:    newHistory(),
		invariants: Invariants(),
	}
	return w
}

// Now is the virtual time.
func (w *World) Now() time.Time { return Epoch().Add(w.now) }

// Elapsed is the virtual time since Epoch.
func (w *World) Elapsed() time.Duration { return w.now }

// Finding is the first invariant that was broken, nil if none was. Nothing
// runs any more after it.
func (w *World) Finding() *Finding { return w.finding }

// SetCalm says whether nobody may be suspected from now on.
func (w *World) SetCalm(calm bool) { w.calm = calm }

// Run moves the clock on by d. After a finding nothing happens any more.
func (w *World) Run(d time.Duration) {
	end := w.now + d
	for w.finding == nil && len(w.events) > 0 && w.events[0].at <= end {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.run()
	}
	w.now = end
}

// RunUntil moves the clock on until done, which it asks each step of virtual
// time, or by at most limit. It reports whether done was reached.
func (w *World) RunUntil(limit, step time.Duration, done func() bool) bool {
	for end := w.now + limit; ; {
		switch {
		case w.finding != nil:
			return false
		case done():
			return true
		case w.now >= end:
			return false
		}
		w.Run(min(step, end-w.now))
	}
}

// after schedules run.
func (w *World) after(d time.Duration, run func()) {
	w.nextSeq++
	heap.Push(&w.events, event{at: w.now + max(d, 0), seq: w.nextSeq, run: run})
}

// found records a broken invariant.
func (w *World) found(name, sentence, detail string) {
	if w.finding == nil {
		w.finding = &Finding{Seed: w.Seed, At: w.now, Invariant: name, Sentence: sentence, Detail: detail}
		w.note("FOUND %s: %s", name, detail)
	}
}

// Assert checks an invariant of a whole act, unless the run has ended already.
func (w *World) Assert(name, sentence string, check func() error) {
	if w.finding != nil {
		return
	}
	if err := check(); err != nil {
		w.found(name, sentence, err.Error())
	}
}

// between is a random duration in [low, high].
func (w *World) between(low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + time.Duration(w.rng.Int64N(int64(high-low)+1))
}

// chance is true with probability p.
func (w *World) chance(p float64) bool { return p > 0 && w.rng.Float64() < p }

func (w *World) note(format string, args ...any) { w.Trace.note(w.now, fmt.Sprintf(format, args...)) }

// Finding is a broken invariant.
type Finding struct {
	Seed      uint64
	At        time.Duration
	Invariant string
	Sentence  string
	Detail    string
}

// Error says what was broken, when and how.
func (f *Finding) Error() string {
	return fmt.Sprintf("sim: seed %d at %v: %s: %s\n\t%s", f.Seed, f.At, f.Invariant, f.Sentence, f.Detail)
}

// event is something due; seq keeps those of one moment in order.
type event struct {
	at  time.Duration
	seq uint64
	run func()
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = event{}
	*h = old[:len(old)-1]
	return last
}
