// Package transcript holds what the parts under test write, for tests that read it
// meanwhile.
package transcript

import (
	"bytes"
	"sync"
)

// Buffer is a bytes.Buffer that one goroutine may read while others write. Its
// zero value is empty and ready for use.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write appends p. It never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String returns all that was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
