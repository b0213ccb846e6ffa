package snap

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/core/raft/disk"
	"github.com/fairlead/fairlead/core/raft/disk/disktest"
)

func meta(index uint64) Meta {
	return Meta{Cluster: "c0ffee", Index: index, Term: 2, Membership: []byte("one, two")}
}

// save makes a snapshot of so many bytes that its index says.
func save(s *Store, index uint64, size int) error {
	return s.Save(meta(index), func(yield func([]byte) error) error {
		data := content(index, size)
		for len(data) > 0 {
			n := min(len(data), 700_000)
			if err := yield(data[:n]); err != nil {
				return err
			}
			data = data[n:]
		}
		return nil
	})
}

func content(index uint64, size int) []byte {
	r, b := rand.New(rand.NewPCG(index, 1)), make([]byte, size)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func open(t testing.TB, fs disk.FS) *Store {
	t.Helper()
	s, err := Open(fs)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSaveSendReceive(t *testing.T) {
	fs, err := disk.OpenOS(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	here, there := open(t, fs), open(t, disktest.NewCrash())
	for i, size := range []int{0, 1, pieceBytes - 1, pieceBytes, pieceBytes + 1, 4<<20 + 1} {
		index := uint64(10 + i)
		if err := save(here, index, size); err != nil {
			t.Fatal(err)
		}
		r, err := here.Send(index, 2)
		if err != nil {
			t.Fatal(err)
		}
		in, err := there.Receive(Meta{Cluster: "c0ffee", Index: index, Term: 2})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyBuffer(in, r, make([]byte, 100_000)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(in.Commit(), r.Close()); err != nil {
			t.Fatal(err)
		}
		for _, s := range []*Store{here, there} {
			m, data, err := s.Load(index, 2)
			if err != nil || string(m.Membership) != "one, two" || m.Cluster != "c0ffee" || !bytes.Equal(data, content(index, size)) {
				t.Fatalf("%d bytes: %+v, %d bytes, %v", size, m, len(data), err)
			}
		}
	}
	if err := save(here, 10, 9); err != nil { // it is there: as it was
		t.Fatal(err)
	}
	if err := here.Keep(2, 15); err != nil {
		t.Fatal(err)
	}
	list, err := here.List()
	if err != nil || len(list) != 2 || list[0].Index != 15 || list[1].Index != 14 {
		t.Errorf("%v, %v", list, err)
	}
	if _, _, err := here.Load(10, 2); !errors.Is(err, ErrNone) {
		t.Errorf("%v", err)
	}
}

// Snapshots that were sent and never put in force do not displace the one that the
// log goes on from.
func TestKeepOfWhatCounts(t *testing.T) {
	s := open(t, disktest.NewCrash())
	for _, index := range []uint64{3, 4, 5, 8, 9} {
		if err := save(s, index, 10); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Keep(2, 5); err != nil {
		t.Fatal(err)
	}
	list, err := s.List()
	var left []uint64
	for _, m := range list {
		left = append(left, m.Index)
	}
	if err != nil || !slices.Equal(left, []uint64{9, 8, 5, 4}) {
		t.Errorf("there is %v, %v", left, err)
	}
}

// A process that is killed after it named a snapshot, and before that lasts, finds it
// when it is started again, and relies on it.
func TestWhatOpenFindsLasts(t *testing.T) {
	for step := 1; ; step++ {
		fs := disktest.NewCrash()
		s := open(t, fs)
		fs.StopAt(step)
		err := save(s, 7, 10)
		if err == nil {
			return
		}
		fs.StopAt(1 << 30) // only the process ended
		s = open(t, fs)
		if list, err := s.List(); err != nil || len(list) == 0 {
			continue
		}
		if err := save(s, 7, 10); err != nil { // it is there: as it was
			t.Fatal(err)
		}
		s = open(t, fs.After(disktest.Fate{}))
		if _, _, err := s.Load(7, 2); err != nil {
			t.Fatalf("invariant durable: step %d: %v", step, err)
		}
	}
}

// A snapshot that was sent wrongly is not taken, and leaves nothing.
func TestReceiveRefuses(t *testing.T) {
	from := open(t, disktest.NewCrash())
	if err := save(from, 5, 1000); err != nil {
		t.Fatal(err)
	}
	r, err := from.Send(5, 2)
	if err != nil {
		t.Fatal(err)
	}
	whole, _ := io.ReadAll(r)
	flipped := bytes.Clone(whole)
	flipped[500] ^= 1
	for name, c := range map[string]struct {
		meta Meta
		data []byte
	}{
		"cut":           {meta(5), whole[:len(whole)-1]},
		"longer":        {meta(5), append(bytes.Clone(whole), 0)},
		"altered":       {meta(5), flipped},
		"nothing":       {meta(5), nil},
		"other index":   {meta(6), whole},
		"other cluster": {Meta{Cluster: "abcd", Index: 5, Term: 2}, whole},
	} {
		fs := disktest.NewCrash()
		s := open(t, fs)
		in, err := s.Receive(c.meta)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.Write(c.data); err != nil {
			t.Fatal(err)
		}
		if err := in.Commit(); err == nil {
			t.Errorf("%s: it was taken", name)
		}
		if names, _ := fs.List(); len(names) > 0 {
			t.Errorf("%s: %v are left", name, names)
		}
	}
	if _, err := from.Receive(Meta{Cluster: "../x"}); err == nil {
		t.Error("a cluster of any name")
	}
}

// Any byte that is another is found.
func TestDamage(t *testing.T) {
	fs := disktest.NewCrash()
	if err := save(open(t, fs), 5, 300); err != nil {
		t.Fatal(err)
	}
	name := meta(5).name()
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	size, _ := f.Size()
	for at := range size {
		hurt := fs.After(disktest.Fate{Names: -1})
		b := make([]byte, 1)
		if _, err := f.ReadAt(b, at); err != nil {
			t.Fatal(err)
		}
		if err := hurt.Damage(name, at, []byte{b[0] ^ 4}); err != nil {
			t.Fatal(err)
		}
		var damage *DamageError
		if _, _, err := open(t, hurt).Load(5, 2); !errors.As(err, &damage) || damage.File != name {
			t.Fatalf("invariant damage-is-refused: at %d: %v", at, err)
		}
	}
}

// enumerate crashes at every step of making three snapshots and removing the
// oldest: those that were promised are there and whole, no other is damaged.
func enumerate(lie string) error {
	for step := 1; ; step++ {
		fs := disktest.NewCrash()
		if lie != "" {
			fs.Lies = map[string]bool{lie: true}
		}
		fs.StopAt(step)
		s, err := Open(fs)
		promised := uint64(0)
		for index := uint64(1); err == nil && index <= 3; index++ {
			if err = save(s, index, 2000); err == nil {
				promised = index
				err = s.Keep(2, index)
			}
		}
		if err == nil {
			return nil
		}
		if !errors.Is(err, disktest.ErrCrashed) {
			return err
		}
		_, names := fs.Unsynced()
		for variant := range 8 {
			coin := rand.New(rand.NewPCG(uint64(step), uint64(variant)))
			fate := disktest.Fate{Names: coin.IntN(names + 1)}
			if variant > 0 {
				fate.Sector = func(string, int, int) bool { return coin.IntN(variant) == 0 }
			}
			after := fs.After(fate)
			s, err := Open(after)
			if err != nil {
				return err
			}
			list, err := s.List()
			if err != nil {
				return err
			}
			if promised > 0 && (len(list) == 0 || list[0].Index < promised) {
				return fmt.Errorf("invariant durable: step %d: there is %v, promised was %d", step, list, promised)
			}
			for _, m := range list {
				if _, data, err := s.Load(m.Index, m.Term); err != nil || !bytes.Equal(data, content(m.Index, 2000)) {
					return fmt.Errorf("invariant whole: step %d, snapshot %d: %w", step, m.Index, err)
				}
			}
		}
	}
}

func TestCrashes(t *testing.T) {
	if err := enumerate(""); err != nil {
		t.Error(err)
	}
	for _, lie := range []string{"sync", "names"} {
		if err := enumerate(lie); err == nil {
			t.Errorf("nobody noticed a %s that did nothing", lie)
		}
	}
}
