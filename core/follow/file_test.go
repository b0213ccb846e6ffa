package follow

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/store"
	"github.com/fairlead/fairlead/test/await"
)

func sample() *draft {
	d := newDraft(0xfedcba9876543210, 1<<40)
	for _, kv := range []store.KeyValue{
		{Key: "a", Value: []byte("1"), Create: 2, Mod: 3, Version: 2},
		{Key: "b/\xff\x00", Create: 1 << 39, Mod: 1 << 40, Version: 1, Lease: 7},
		{Key: "c", Value: bytes.Repeat([]byte{0}, 1000), Create: 4, Mod: 4, Version: 1},
	} {
		d.keys.Set(kv.Key, kv)
	}
	return d
}

// What is written is what is read.
func TestFileRoundTrip(t *testing.T) {
	for _, current := range []time.Time{{}, time.Unix(1700000000, 123456789)} {
		d, at, err := decode("of", encode("of", sample().copy(), current))
		if err != nil {
			t.Fatal(err)
		}
		sameState(t, d.copy(), sample().copy())
		if !at.Equal(current) {
			t.Errorf("current %v, want %v", at, current)
		}
	}
}

// Whatever bit is wrong, and wherever it is cut, nothing is taken.
func TestDamageIsSeen(t *testing.T) {
	good := encode("of", sample().copy(), time.Time{})
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1 << (i % 8)
		if _, _, err := decode("of", bad); !errors.Is(err, errDamaged) {
			t.Fatalf("byte %d: %v", i, err)
		}
		if _, _, err := decode("of", good[:i]); !errors.Is(err, errDamaged) {
			t.Fatalf("cut at %d: %v", i, err)
		}
	}
}

// Not even one that its hash fits is trusted to be whole.
func TestForeignFiles(t *testing.T) {
	sealed := func(body []byte) []byte {
		sum := sha256.Sum256(body)
		return append(bytes.Clone(body), sum[:]...)
	}
	good := encode("of", sample().copy(), time.Time{})
	body := good[:len(good)-sha256.Size]
	for i := len(magic); i < len(body); i++ {
		if _, _, err := decode("of", sealed(body[:i])); err == nil {
			t.Fatalf("cut at %d", i)
		}
	}
	if _, _, err := decode("of", sealed(append(bytes.Clone(body), 0))); !errors.Is(err, errDamaged) {
		t.Error("more than it says:", err)
	}
	later := bytes.Clone(body)
	later[len(magic)-1]++
	if _, _, err := decode("of", sealed(later)); !errors.Is(err, errForeign) || !strings.Contains(err.Error(), "another version") {
		t.Error(err)
	}
	if _, _, err := decode("else", good); !errors.Is(err, errForeign) || !strings.Contains(err.Error(), `"of"`) {
		t.Error(err)
	}
}

func FuzzFile(f *testing.F) {
	good := encode("of", sample().copy(), time.Unix(1, 1))
	f.Add(good[:len(good)-sha256.Size])
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, body []byte) {
		sum := sha256.Sum256(body)
		d, at, err := decode("of", append(bytes.Clone(body), sum[:]...))
		if err != nil {
			return
		}
		again, then, err := decode("of", encode("of", d.copy(), at))
		if err != nil || !then.Equal(at) {
			t.Fatal(err)
		}
		sameState(t, again.copy(), d.copy())
	})
}

// Without any server, a start knows what the one before knew.
func TestStartWithoutServer(t *testing.T) {
	n := newNode(t, 1, "n1")
	a := newAgent(t, n)
	a.start()
	a.reaches(n.put("k", "v"))
	want := a.State()
	n.kill()
	a.restart()
	sameState(t, a.State(), want)
	if info, err := os.Stat(a.cfg.File); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// The file is written while it follows: a process that is killed loses a second.
func TestWrittenMeanwhile(t *testing.T) {
	n := newNode(t, 1, "n1")
	a := newAgent(t, n)
	a.start()
	revision := n.put("k", "v")
	await.Until(t, func() string {
		data, err := os.ReadFile(a.cfg.File)
		if err != nil {
			return err.Error()
		}
		d, _, err := decode(a.cfg.Of, data)
		if err != nil {
			t.Fatal(err)
		}
		if d.revision < revision {
			return "an older revision is written"
		}
		return ""
	})
}

// Changes are written at most once in a time.
func TestWritesAreFew(t *testing.T) {
	n := newNode(t, 1, "n1")
	a := newAgent(t, n)
	a.cfg.times.write = time.Hour
	a.start()
	await.For(t, "the first write", func() bool { return value(t, a, "fairlead_follow_writes_total", writeOK) == 1 })
	for range 20 {
		n.put("k", "v")
	}
	a.has(n)
	if got := value(t, a, "fairlead_follow_writes_total", writeOK); got != 1 {
		t.Errorf("written %v times", got)
	}
	want := a.State()
	n.kill()
	a.Stop() // writes what is new
	a.start()
	sameState(t, a.State(), want)
}

// A file that cannot be used is set aside, said once, and read anew from a server.
func TestDamagedFile(t *testing.T) {
	n := newNode(t, 1, "n1")
	a := newAgent(t, n)
	a.start()
	a.reaches(n.put("k", "v"))
	a.Stop()
	data, err := os.ReadFile(a.cfg.File)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 4
	if err := os.WriteFile(a.cfg.File, data, 0o600); err != nil {
		t.Fatal(err)
	}
	a.know()
	a.start()
	if a.State().Revision() != 0 {
		t.Error("a damaged file was taken")
	}
	if got := a.log.count("is not used"); got != 1 {
		t.Errorf("said %d times", got)
	}
	if aside, err := os.ReadFile(a.cfg.File + ".damaged"); err != nil || !bytes.Equal(aside, data) {
		t.Errorf("it is not aside: %v", err)
	}
	a.know(n)
	a.has(n)
	a.restart()
	if got := a.log.count("is not used"); got != 1 || a.State().Revision() == 0 {
		t.Errorf("said %d times; revision %d", got, a.State().Revision())
	}
}

// A file of another cluster's name is not taken.
func TestFileOfAnother(t *testing.T) {
	n := newNode(t, 1, "n1")
	a := newAgent(t, n)
	a.start()
	a.reaches(n.put("k", "v"))
	a.Stop()
	a.know()
	a.cfg.Of = "the system of test"
	a.start()
	if a.State().Revision() != 0 || a.log.count("the system of prod") == 0 {
		t.Error("the copy of another cluster was taken")
	}
}

// While the file cannot be written, following goes on; then it is written.
func TestFileCannotBeWritten(t *testing.T) {
	n := newNode(t, 1, "n1")
	a := newAgent(t, n)
	dir := filepath.Join(filepath.Dir(a.cfg.File), "later")
	a.cfg.File = filepath.Join(dir, "system.copy")
	a.start()
	a.reaches(n.put("k", "v"))
	await.For(t, "failures", func() bool { return value(t, a, "fairlead_follow_writes_total", writeFailed) >= 3 })
	a.has(n)
	if got := a.log.count("cannot be written"); got != 1 {
		t.Errorf("said %d times", got)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	await.For(t, "it is written", func() bool { return value(t, a, "fairlead_follow_writes_total", writeOK) >= 1 })
}

// In memory only, nothing is written.
func TestInMemory(t *testing.T) {
	n := newNode(t, 1, "n1")
	a := newAgent(t, n)
	dir := filepath.Dir(a.cfg.File)
	a.cfg.File = ""
	a.start()
	a.reaches(n.put("k", "v"))
	a.Stop()
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Errorf("%v, %v", files, err)
	}
}
