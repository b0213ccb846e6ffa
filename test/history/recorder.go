package history

import (
	"sync"
	"time"
)

// Recorder takes down calls and watches as they happen. Its methods may be called by
// several goroutines. Its zero value is ready for use.
type Recorder struct {
	mu      sync.Mutex
	began   time.Time
	calls   []*Call
	streams []*Watching
}

// Call is a call under way.
type Call struct {
	r  *Recorder
	op Operation
}

// Watching is a watch under way.
type Watching struct {
	r *Recorder
	s Stream
}

// now is called with mu held.
func (r *Recorder) now() int64 {
	if r.began.IsZero() {
		r.began = time.Now()
	}
	return int64(time.Since(r.began)) + 1
}

// Begin notes that a client calls.
func (r *Recorder) Begin(client int, server string, op Operation) *Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	op.Client, op.Server, op.Outcome = client, server, Unknown
	op.Call = r.now()
	c := &Call{r: r, op: op}
	r.calls = append(r.calls, c)
	return c
}

// End notes the answer. A call that never ends stays unknown.
func (c *Call) End(a Answer) { c.over(Done, a) }

// Refused notes that the server says that it will not do it.
func (c *Call) Refused() { c.over(Refused, Answer{}) }

// Lost notes that the client gave up: it asks again only once this is noted.
func (c *Call) Lost() { c.over(Unknown, Answer{}) }

func (c *Call) over(o Outcome, a Answer) {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.op.Outcome, c.op.Answer, c.op.Return = o, a, c.r.now()
}

// Watch notes that a watch of all keys begins at a revision. Whatever is told by it,
// also after a restart of the server at the next revision, is a Watching of its own.
func (r *Recorder) Watch(name string, from int64) *Watching {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := &Watching{r: r, s: Stream{Name: name, From: from}}
	r.streams = append(r.streams, w)
	return w
}

// Got notes one response.
func (w *Watching) Got(b Batch) {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	b.At = w.r.now()
	w.s.Batches = append(w.s.Batches, b)
}

// Reached returns the revision up to which the watch has shown all there is.
func (w *Watching) Reached() int64 {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	return w.s.reached()
}

// History returns all that was noted so far.
func (r *Recorder) History() History {
	r.mu.Lock()
	defer r.mu.Unlock()
	var h History
	for _, c := range r.calls {
		h.Operations = append(h.Operations, c.op)
	}
	for _, w := range r.streams {
		s := w.s
		s.Batches = append([]Batch(nil), s.Batches...)
		h.Streams = append(h.Streams, s)
	}
	return h
}
