package handshake

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTempDir(t *testing.T) {
	for set, want := range map[string]string{
		"/var/tmp":                              "/var/tmp",
		"/var/tmp/" + strings.Repeat("long", 5): "/tmp",
		"relative":                              "/tmp",
	} {
		t.Setenv("TMPDIR", set)
		dir, err := TempDir("fl-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		info, err := os.Stat(dir)
		if err != nil || filepath.Dir(dir) != want || info.Mode().Perm() != 0o700 {
			t.Errorf("with %s it is %s, %v, %v", set, dir, info, err)
		}
	}
}
