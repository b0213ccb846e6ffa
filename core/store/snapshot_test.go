package store

import (
	"bytes"
	"os"
	"testing"
)

// testdata/snapshot-1 was written before versions were kept in slabs. It is read as
// what it was then, and written as it was.
func TestOldSnapshot(t *testing.T) {
	data, err := os.ReadFile("testdata/snapshot-1")
	if err != nil {
		t.Fatal(err)
	}
	m, err := Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	v := m.View()
	if want := (Digest{18310698351902709911, 15385086585627063404}); v.Digest() != want {
		t.Errorf("its digest is %v, want %v", v.Digest(), want)
	}
	if hash, at, compacted, err := v.HashAt(User, 0); hash != 3870564423 || at != 63 || compacted != 30 || err != nil {
		t.Errorf("its hash is %d at %d since %d, %v", hash, at, compacted, err)
	}
	if got, want := v.Stats(User), (Stats{63, 30, 9097, 1 << 20, false, 27, 1}); got != want {
		t.Errorf("it has %+v, want %+v", got, want)
	}
	var again bytes.Buffer
	if err := v.Encode(func(p []byte) error { _, err := again.Write(p); return err }); err != nil || !bytes.Equal(again.Bytes(), data) {
		t.Errorf("it is written as other bytes, %v", err)
	}
}
