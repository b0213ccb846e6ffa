package runnable

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/test/scale"
)

// Programs that are written while others start can be run at once.
func TestWrittenWhileOthersStart(t *testing.T) {
	dir := t.TempDir()
	text := make([]byte, 4<<20) // takes a moment to write
	copy(text, "#!/bin/sh\nexit 0\n")
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for i := range scale.N(200) {
				path := filepath.Join(dir, strconv.Itoa(worker)+"."+strconv.Itoa(i%2))
				if err := Write(path, text); err != nil {
					t.Error(err)
					return
				}
				if out, err := exec.Command(path).CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
					return
				}
			}
		})
	}
	all.Wait()
}
