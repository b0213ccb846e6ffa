package membership

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/core/swim/wire"
)

// fill appends n events and keeps a snapshot that includes them.
func fill(l *eventLog, latest *Snapshot, n int) {
	for range n {
		next := latest.Seq + 1
		*latest = Snapshot{Seq: next}
		l.append([]Event{{Seq: next}})
	}
}

func TestReaderWithinTheRingMissesNothing(t *testing.T) {
	var latest Snapshot
	l := newEventLog(4, func() *Snapshot { s := latest; return &s })
	fill(l, &latest, 10)
	for from := uint64(6); from <= 10; from++ {
		next := from
		for u, err := range l.read(t.Context(), from, false) {
			next++
			if err != nil || u.Reset != nil || u.Event.Seq != next {
				t.Fatalf("after %d: got %+v, %v; want event %d", from, u, err, next)
			}
		}
		if next != 10 {
			t.Errorf("after %d: stopped at %d, want 10", from, next)
		}
	}
}

func TestLaggingReaderIsResetAndGoesOn(t *testing.T) {
	var latest Snapshot
	l := newEventLog(4, func() *Snapshot { s := latest; return &s })
	fill(l, &latest, 10)
	for name, from := range map[string]uint64{"lags by more than the ring": 5, "from the start": 0, "of another process": 1000} {
		var got []Update
		for u := range l.read(t.Context(), from, false) {
			if got = append(got, u); len(got) == 1 {
				fill(l, &latest, 2) // while the reader looks at the snapshot
			}
		}
		last := latest.Seq
		if len(got) != 3 || got[0].Reset == nil || got[0].Reset.Seq != last-2 || got[1].Event.Seq != last-1 || got[2].Event.Seq != last {
			t.Errorf("%s: got %+v, want a reset to %d and two events", name, got, last-2)
		}
	}
}

func TestLargeRecordsShortenTheLog(t *testing.T) {
	var latest Snapshot
	l := newEventLog(8, func() *Snapshot { s := latest; return &s })
	l.budget = 100
	held := func() (n, bytes int) {
		definitions := map[wire.Hash]int{}
		for _, e := range l.ring {
			bytes += len(e.Member.Vector)
			definitions[e.Member.Hash] = len(e.Member.Definition)
			if e.Seq != 0 {
				n++
			}
		}
		for _, size := range definitions {
			bytes += size
		}
		return n, bytes
	}
	for seq, size := range []int{0, 30, 30, 30, 30, 0, 101, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 99} {
		if seq == 0 {
			continue
		}
		latest = Snapshot{Seq: uint64(seq)}
		l.append([]Event{{Seq: uint64(seq), Member: Member{Hash: wire.Hash{byte(seq)}, Definition: make([]byte, size/2), Vector: make([]byte, size-size/2)}}})
		n, bytes := held()
		if uint64(n) != l.held || bytes != l.bytes || n == 0 || bytes > l.budget && n > 1 {
			t.Fatalf("event %d: %d events of %d bytes in the ring, %d of %d counted, at most %d allowed", seq, n, bytes, l.held, l.bytes, l.budget)
		}
		// Whoever saw all but what is held is given it, whoever saw less a reset.
		if u, ok, _ := l.after(uint64(seq - n)); !ok || u.Reset != nil || u.Event.Seq != uint64(seq-n+1) {
			t.Fatalf("event %d: after %d held: %+v", seq, n, u)
		}
		if u, ok, _ := l.after(uint64(seq - n - 1)); seq > n && (!ok || u.Reset == nil) {
			t.Fatalf("event %d: a reader that lags by %d got %+v, want a reset", seq, n+1, u)
		}
	}
}

// Health changes often: events of one definition hold it once.
func TestADefinitionCountsOnceInTheLog(t *testing.T) {
	var latest Snapshot
	l := newEventLog(8, func() *Snapshot { s := latest; return &s })
	l.budget = 100
	definition := make([]byte, 60)
	for seq := uint64(1); seq <= 20; seq++ {
		latest = Snapshot{Seq: seq}
		hash := wire.Hash{byte(1 + seq/18)} // another one from event 18 on
		l.append([]Event{{Seq: seq, Member: Member{Hash: hash, Definition: definition, Vector: make([]byte, 5)}}})
		want := min(seq, 8)
		if seq >= 18 {
			want = seq - 17 // 8 × 5 + 2 × 60 would be too much: those of the old one go
		}
		if l.held != want || l.bytes != len(definition)+5*int(want) {
			t.Fatalf("after event %d: %d held of %d bytes, want %d", seq, l.held, l.bytes, want)
		}
	}
	if len(l.shared) != 1 {
		t.Errorf("%d definitions counted, want the one that events refer to", len(l.shared))
	}
}

func TestReaderOfANewerSnapshotWaitsForItsEvents(t *testing.T) {
	l := newEventLog(4, func() *Snapshot { return &Snapshot{Seq: 2} })
	l.append([]Event{{Seq: 1}})
	if u, ok, more := l.after(2); ok || more == nil {
		t.Errorf("got %+v, want to wait: the snapshot is published before its events", u)
	}
	l.append([]Event{{Seq: 2}, {Seq: 3}})
	if u, ok, _ := l.after(2); !ok || u.Event.Seq != 3 {
		t.Errorf("got %+v, want event 3", u)
	}
}

func TestReaderNeverSkipsInSilence(t *testing.T) {
	var mu sync.Mutex
	var latest Snapshot
	l := newEventLog(8, func() *Snapshot { mu.Lock(); defer mu.Unlock(); s := latest; return &s })
	const total = 20_000
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			at := uint64(0)
			for u, err := range l.read(context.Background(), 0, true) {
				switch {
				case errors.Is(err, ErrClosed):
				case u.Reset != nil && u.Reset.Seq >= at:
					at = u.Reset.Seq
				case u.Reset == nil && u.Event.Seq == at+1:
					at++
				default:
					t.Errorf("at %d: got %+v, %v", at, u, err)
					return
				}
			}
			if at != total {
				t.Errorf("ended at %d, want %d", at, total)
			}
		})
	}
	for seq := uint64(1); seq <= total; seq++ {
		mu.Lock()
		latest = Snapshot{Seq: seq}
		mu.Unlock()
		l.append([]Event{{Seq: seq}})
	}
	l.end()
	readers.Wait()
}

func TestFollowingReaderSleepsUntilThereIsMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var latest Snapshot
		l := newEventLog(4, func() *Snapshot { return &latest })
		ctx, cancel := context.WithCancel(t.Context())
		seen := make(chan uint64, 10)
		go func() {
			defer close(seen)
			for u, err := range l.read(ctx, 0, true) {
				if err != nil {
					return
				}
				seen <- u.Event.Seq
			}
		}()
		synctest.Wait() // asleep
		l.append([]Event{{Seq: 1}, {Seq: 2}})
		if a, b := <-seen, <-seen; a != 1 || b != 2 {
			t.Errorf("saw %d, %d", a, b)
		}
		cancel()
		if seq, ok := <-seen; ok {
			t.Errorf("saw %d after its context ended", seq)
		}
	})
}
