package transcript_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/test/transcript"
)

// The race detector watches; each write stays in one piece.
func TestBufferIsReadWhileItIsWritten(t *testing.T) {
	var b transcript.Buffer
	var writing sync.WaitGroup
	for i := range 4 {
		writing.Go(func() {
			for range 100 {
				fmt.Fprintf(&b, "line of %d\n", i)
				_ = b.String()
			}
		})
	}
	writing.Wait()
	for i := range 4 {
		if n := strings.Count(b.String(), fmt.Sprintf("line of %d\n", i)); n != 100 {
			t.Errorf("%d lines of writer %d", n, i)
		}
	}
}
