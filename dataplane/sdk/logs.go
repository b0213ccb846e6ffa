package sdk

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// maxQueuedLogBytes is how much may wait while nobody reads standard error.
const maxQueuedLogBytes = 256 << 10

// logWriter stands between a logger and standard error, which may be a pipe that
// nobody reads, or whose reader is gone. Write only queues; what does not fit is
// dropped and counted. A failed write loses its line and nothing else.
type logWriter struct {
	out io.Writer

	mu      sync.Mutex
	cond    *sync.Cond
	queue   [][]byte
	bytes   int
	dropped int
	writing bool
	closed  bool
	ended   chan struct{}
}

func newLogWriter(out io.Writer) *logWriter {
	w := &logWriter{out: out, ended: make(chan struct{})}
	w.cond = sync.NewCond(&w.mu)
	go w.run()
	return w
}

// Write queues a line. It does not block and does not fail.
func (w *logWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
	case w.bytes+len(p) > maxQueuedLogBytes:
		w.dropped++
	default:
		w.queue = append(w.queue, bytes.Clone(p))
		w.bytes += len(p)
		w.cond.Broadcast()
	}
	return len(p), nil
}

func (w *logWriter) run() {
	defer close(w.ended)
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for len(w.queue) == 0 {
			if w.closed {
				return
			}
			w.cond.Wait()
		}
		line := w.queue[0]
		w.queue = w.queue[1:]
		dropped := w.dropped
		w.dropped = 0
		w.writing = true
		w.mu.Unlock()
		// An error means that nobody listens. There is nobody to tell.
		_, _ = w.out.Write(line)
		if dropped > 0 {
			_, _ = fmt.Fprintf(w.out, `{"@level":"warn","@message":"log lines were dropped, as nobody read standard error","lines":%d}`+"\n", dropped)
		}
		w.mu.Lock()
		w.bytes -= len(line)
		w.writing = false
		w.cond.Broadcast()
	}
}

// Flush waits until all is written, at most for patience.
func (w *logWriter) Flush(patience time.Duration) {
	late := false
	timer := time.AfterFunc(patience, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		late = true
		w.cond.Broadcast()
	})
	defer timer.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	for !late && (len(w.queue) > 0 || w.writing) {
		w.cond.Wait()
	}
}

// Close writes what is queued, at most for patience. A writer that is stuck in
// the kernel is left behind.
func (w *logWriter) Close(patience time.Duration) {
	w.Flush(patience)
	w.mu.Lock()
	w.closed = true
	w.cond.Broadcast()
	stuck := w.writing
	w.mu.Unlock()
	if !stuck {
		<-w.ended
	}
}

// newLogger logs as hosts expect it of a child, JSON with go-plugin's names of
// keys, or as people do.
func newLogger(w io.Writer, child bool, level slog.Leveler) *slog.Logger {
	if !child {
		return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) > 0 {
			return a
		}
		switch a.Key {
		case slog.TimeKey:
			return slog.String("@timestamp", a.Value.Time().Format("2006-01-02T15:04:05.000000Z07:00"))
		case slog.LevelKey:
			return slog.String("@level", strings.ToLower(a.Value.String()))
		case slog.MessageKey:
			return slog.Attr{Key: "@message", Value: a.Value}
		}
		return a
	}}))
}
