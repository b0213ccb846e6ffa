package pluginhost

import (
	"io"
	"os"
	"testing"
	"time"
)

// What a process wrote is read although the deadline is over, and somebody else holds
// the pipe; and no more than a pipe holds, if that one goes on.
func TestPipeIsReadLate(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString("last words\n"); err != nil {
		t.Fatal(err)
	}
	if err := r.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(newPipe(r)); err != nil || string(text) != "last words\n" {
		t.Errorf("%q, %v", text, err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for err := error(nil); err == nil; {
			_, err = w.Write(make([]byte, 4<<10))
		}
	}()
	if err := r.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(newPipe(r)); err != nil || len(text) > maxLateBytes {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	w.Close()
	<-done
}
