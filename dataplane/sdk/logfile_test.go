package sdk

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

func TestLogFileIsBoundedAtAllTimes(t *testing.T) {
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "x.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	serve := func(key string) string {
		return map[string]string{handshake.EnvOnHostLoss: handshake.HostLossServe}[key]
	}
	out := boundedStderr(f, serve)
	line := append(bytes.Repeat([]byte("x"), 64<<10), '\n')
	for i := range 200 { // three times what it may hold
		if n, err := out.Write(line); n != len(line) || err != nil {
			t.Fatalf("line %d: %d, %v", i, n, err)
		}
		if info, err := f.Stat(); err != nil || info.Size() > handshake.MaxLogBytes || info.Size() < int64(len(line)) {
			t.Fatalf("after line %d it has %v, %v", i, info.Size(), err)
		}
	}
	if _, err := out.Write([]byte("last words\n")); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(f.Name()); err != nil || !strings.HasSuffix(string(text), "last words\n") || text[0] != 'x' {
		t.Errorf("it ends with %q, %v", text[len(text)-20:], err)
	}
	// A pipe, or a child that ends with its host, is left alone.
	if got := boundedStderr(f, func(string) string { return "" }); got != f {
		t.Errorf("without on_host_loss: serve it is %T", got)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if got := boundedStderr(w, serve); got != w {
		t.Errorf("a pipe is %T", got)
	}
}
