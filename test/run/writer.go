package main

import (
	"io"
	"sync"
)

// lockedWriter lets the reports of this program and the standard error of the
// commands that it starts share one writer.
type lockedWriter struct {
	mu sync.Mutex // guards all following fields
	w  io.Writer
}

// Write implements io.Writer.
func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
