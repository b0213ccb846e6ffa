// Package short makes directories for tests that have sockets in them: the path of
// t.TempDir has the test's name in it, and TMPDIR may be long itself, while the path of
// a Unix socket has to fit into 107 bytes.
package short

import (
	"os"
	"testing"

	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

// Dir returns a directory that is gone after the test.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := handshake.TempDir("fl-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
