package journal

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/dataplane"
)

func snapshot(generation uint64, complete dataplane.Completeness, names ...string) *dataplane.Snapshot {
	e := (&dataplane.Snapshot{}).Edit()
	for i, name := range names {
		e.Set(&dataplane.Service{
			Key:       dataplane.Key{Namespace: "test", Name: name},
			Frontends: []dataplane.Frontend{{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 200, 0, byte(i + 1)}), 80), Protocol: dataplane.TCP, Kind: dataplane.FrontendVIP}},
			Endpoints: dataplane.NewEndpoints(dataplane.Endpoint{ID: 7, Addr: netip.MustParseAddrPort("10.9.0.1:80"), Weight: 1}),
		})
	}
	s := e.Done()
	s.Session = dataplane.Session{AgentID: "agent", BootEpoch: 3}
	s.Generation, s.Digest, s.Completeness = generation, []byte(fmt.Sprint("digest", generation)), complete
	return s
}

// write takes a snapshot in, and commits it or not.
func write(t *testing.T, j *Journal, was, is *dataplane.Snapshot, commit bool) {
	t.Helper()
	if was == nil {
		was = &dataplane.Snapshot{}
	}
	if err := j.Begin(is, dataplane.Diff(was, is, nil)); err != nil {
		t.Fatal(err)
	}
	if commit {
		if err := j.Commit(is); err != nil {
			t.Fatal(err)
		}
	}
}

// remembers fails the test unless the next process finds just this.
func remembers(t *testing.T, dir string, want *dataplane.Snapshot, committed bool) {
	t.Helper()
	_, m := Open(dir, "tag")
	switch {
	case want == nil && m.Snapshot == nil:
	case want == nil || m.Snapshot == nil:
		t.Errorf("remembered is %v, want %v", m.Snapshot, want)
	case m.Committed != committed || m.Snapshot.Generation != want.Generation || string(m.Snapshot.Digest) != string(want.Digest) ||
		m.Snapshot.Session != want.Session || m.Snapshot.Completeness != want.Completeness:
		t.Errorf("remembered is %+v, committed %v; want %+v, %v", m.Snapshot, m.Committed, want, committed)
	default:
		if d := dataplane.Diff(m.Snapshot, want, nil); len(d.Changes) > 0 {
			t.Errorf("remembered differs: %+v", d.Changes)
		}
	}
}

func TestRemembers(t *testing.T) {
	dir := t.TempDir()
	remembers(t, dir, nil, false)
	j, _ := Open(dir, "tag")
	one := snapshot(1, dataplane.Incomplete, "a", "b")
	write(t, j, nil, one, false)
	remembers(t, dir, one, false)
	if err := j.Commit(one); err != nil {
		t.Fatal(err)
	}
	remembers(t, dir, one, true)
	two := snapshot(2, dataplane.Exchanged, "a", "c")
	write(t, j, one, two, true)
	remembers(t, dir, two, true)
	three := snapshot(3, dataplane.Exchanged, "a")
	write(t, j, two, three, false)
	remembers(t, dir, three, false)
	write(t, j, two, three, true) // tried again
	remembers(t, dir, three, true)
	other := snapshot(1, dataplane.Exchanged, "x")
	other.Session.BootEpoch = 4
	write(t, j, three, other, true)
	remembers(t, dir, other, true)
	if err := j.Remove(); err != nil {
		t.Fatal(err)
	}
	remembers(t, dir, nil, false)
}

// TestTorn: whatever the end of the file lost, what is remembered is a generation that
// was begun, and it is never said to be applied when its end is not there.
func TestTorn(t *testing.T) {
	dir := t.TempDir()
	j, _ := Open(dir, "tag")
	var last *dataplane.Snapshot
	for g := range uint64(4) {
		next := snapshot(g+1, dataplane.Exchanged, "a", fmt.Sprint("b", g))
		write(t, j, last, next, true)
		last = next
	}
	path := filepath.Join(dir, fileName+"tag")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) {
		m := remember(whole[:n])
		if m.Snapshot != nil && m.Committed && m.Snapshot.Generation == last.Generation {
			t.Fatalf("with %d of %d bytes generation %d is said to be applied", n, len(whole), last.Generation)
		}
	}
	for i := range whole { // damaged anywhere: no panic
		b := append([]byte(nil), whole...)
		b[i] ^= 0x55
		remember(b)
	}
}

// TestStaysSmall: the file does not grow with the number of generations.
func TestStaysSmall(t *testing.T) {
	dir := t.TempDir()
	j, _ := Open(dir, "tag")
	j.whole = 1
	last := snapshot(1, dataplane.Exchanged, "a")
	write(t, j, nil, last, true)
	largest := int64(0)
	for g := range uint64(40_000) {
		next := snapshot(g+2, dataplane.Exchanged, fmt.Sprint("a", g%2))
		write(t, j, last, next, true)
		last = next
		largest = max(largest, j.size)
	}
	if largest > 2<<20 {
		t.Errorf("the file got %d bytes large", largest)
	}
	remembers(t, dir, last, true)
}

func TestKeepsNothingWithoutDirectory(t *testing.T) {
	j, m := Open("", "tag")
	if m.Snapshot != nil {
		t.Error("something is remembered")
	}
	write(t, j, nil, snapshot(1, dataplane.Exchanged, "a"), true)
	if err := j.Remove(); err != nil {
		t.Error(err)
	}
}
