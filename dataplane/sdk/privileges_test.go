package sdk

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The kernel keeps 15 bytes of a name.
func TestProcessKeepsItsName(t *testing.T) {
	l := launch(t, "plain", nil)
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", l.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimSpace(string(b))
	if want := filepath.Base(l.cmd.Path); name == "" || !strings.HasPrefix(want, name) {
		t.Errorf("the process is called %q, want %q", name, want)
	}
}
