package membership

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/core/model"
)

func TestReadNodeID(t *testing.T) {
	dir := t.TempDir()
	for _, step := range []struct {
		text string // of node.json; empty: there is none
		id   model.NodeID
		bad  bool
	}{{"", 0, false}, {`{"id": "00000000000000a1", "epoch": 3}`, 0xa1, false}, {"{", 0, true}} {
		if step.text != "" {
			if err := os.WriteFile(filepath.Join(dir, nodeFile), []byte(step.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		id, err := ReadNodeID(dir)
		if id != step.id || (err != nil) != step.bad || err != nil && !errors.Is(err, ErrDataDir) {
			t.Errorf("of %q: %v, %v", step.text, id, err)
		}
	}
}
