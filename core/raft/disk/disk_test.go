package disk_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/core/raft/disk"
	"github.com/fairlead/fairlead/core/raft/disk/disktest"
	"github.com/fairlead/fairlead/test/scale"
)

// each runs a test on every directory there is.
func each(t *testing.T, run func(*testing.T, disk.FS)) {
	t.Helper()
	t.Run("OS", func(t *testing.T) {
		o, err := disk.OpenOS(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		run(t, o)
	})
	t.Run("Memory", func(t *testing.T) { run(t, disk.NewMemory()) })
	t.Run("Crash", func(t *testing.T) { run(t, disktest.NewCrash()) })
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestNames(t *testing.T) {
	each(t, func(t *testing.T, d disk.FS) {
		list := func(want ...string) {
			t.Helper()
			if got := must[[]string](t)(d.List()); !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		}
		list()
		a := must[disk.File](t)(d.Create("a"))
		must[int](t)(a.WriteAt([]byte("of a"), 0))
		if _, err := d.Create("a"); !errors.Is(err, fs.ErrExist) {
			t.Errorf("create what is there: %v", err)
		}
		b := must[disk.File](t)(d.Create("b"))
		list("a", "b")
		ok(t, d.Rename("a", "b"))
		ok(t, d.SyncNames())
		list("b")
		for op, err := range map[string]error{
			"open":   func() error { _, err := d.Open("a"); return err }(),
			"rename": d.Rename("a", "c"),
			"remove": d.Remove("a"),
		} {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s what is not there: %v", op, err)
			}
		}
		now := must[disk.File](t)(d.Open("b"))
		if got := contentOf(t, now); string(got) != "of a" {
			t.Errorf("the renamed file has %q", got)
		}
		// Those that are open go on to be the files that they were.
		must[int](t)(b.WriteAt([]byte("of b"), 0))
		ok(t, d.Remove("b"))
		list()
		if got := contentOf(t, b); string(got) != "of b" {
			t.Errorf("the replaced file has %q", got)
		}
		if got := contentOf(t, now); string(got) != "of a" {
			t.Errorf("the removed file has %q", got)
		}
		for _, f := range []disk.File{a, b, now} {
			ok(t, f.Sync())
			ok(t, f.Close())
		}
		if _, err := a.WriteAt([]byte("x"), 0); err == nil {
			t.Error("a closed file takes a write")
		}
		if free := must[uint64](t)(d.FreeBytes()); free == 0 {
			t.Error("there is no room")
		}
	})
}

func contentOf(t *testing.T, f disk.File) []byte {
	t.Helper()
	b := make([]byte, must[int64](t)(f.Size()))
	if n, err := f.ReadAt(b, 0); n != len(b) || err != nil && err != io.EOF {
		t.Fatalf("%d bytes of %d, %v", n, len(b), err)
	}
	return b
}

// Whatever is done to a file, it is what a slice would be.
func TestContents(t *testing.T) {
	each(t, func(t *testing.T, d disk.FS) {
		r := rand.New(rand.NewPCG(1, 2))
		f := must[disk.File](t)(d.Create("f"))
		other := must[disk.File](t)(d.Open("f"))
		var want []byte
		grow := func(size int) {
			if size > len(want) {
				want = append(want, make([]byte, size-len(want))...)
			}
		}
		const largest = 200 << 10
		for i := range scale.N(3000) {
			at := r.IntN(largest)
			switch r.IntN(8) {
			case 0:
				ok(t, f.Allocate(int64(at)+1))
				grow(at + 1)
			case 1:
				size := r.IntN(len(want) + 1)
				ok(t, f.Truncate(int64(size)))
				want = want[:size:size]
			case 2, 3: // also of zeros alone
				p := make([]byte, 1+r.IntN(100<<10))
				must[int](t)(f.WriteAt(p, int64(at)))
				grow(at + len(p))
				copy(want[at:], p)
			default:
				p := bytes.Repeat([]byte{byte(i) | 1}, 1+r.IntN(1000))
				if n := must[int](t)(f.WriteAt(p, int64(at))); n != len(p) {
					t.Fatalf("%d bytes written of %d", n, len(p))
				}
				grow(at + len(p))
				copy(want[at:], p)
			}
			p := make([]byte, r.IntN(100<<10))
			from := r.IntN(largest)
			n, err := other.ReadAt(p, int64(from))
			if there := want[min(from, len(want)):min(from+len(p), len(want))]; !bytes.Equal(p[:n], there) || (n < len(p)) != (err == io.EOF) {
				t.Fatalf("step %d: read at %d of %d: %d bytes, %v; there are %d", i, from, len(want), n, err, len(there))
			}
		}
		if got := contentOf(t, other); !bytes.Equal(got, want) {
			t.Error("the contents differ")
		}
	})
}

// A file that was only allocated, or filled with zeros ahead, takes no memory.
func TestMemoryIsTakenLate(t *testing.T) {
	d := disk.NewMemory()
	f := must[disk.File](t)(d.Create("f"))
	const size = 1 << 40
	var before, after runtime.MemStats
	zeros := make([]byte, 1<<20)
	runtime.ReadMemStats(&before)
	ok(t, f.Allocate(size))
	for at := range int64(100) {
		must[int](t)(f.WriteAt(zeros, at<<20))
	}
	must[int](t)(f.WriteAt([]byte("end"), size-3))
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
		t.Errorf("%d bytes", took)
	}
	got := make([]byte, 4)
	if _, err := f.ReadAt(got, size-4); err != nil || !reflect.DeepEqual(got, []byte("\x00end")) {
		t.Errorf("%q, %v", got, err)
	}
}
