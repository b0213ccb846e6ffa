package transport

import "sync"

// queue holds what waits for one goroutine, within bounds.
type queue[T any] struct {
	maxItems, maxBytes int
	wake               chan struct{} // of one: there may be items

	mu    sync.Mutex
	items []sized[T]
	bytes int
}

// sized is an item and its weight.
type sized[T any] struct {
	item  T
	bytes int
}

func newQueue[T any](l Limits) *queue[T] {
	return &queue[T]{maxItems: l.QueueMessages, maxBytes: l.QueueBytes, wake: make(chan struct{}, 1)}
}

// add appends an item; false if it does not fit. One that is larger than all
// fits if it is alone.
func (q *queue[T]) add(item T, bytes int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) >= q.maxItems || len(q.items) > 0 && q.bytes+bytes > q.maxBytes {
		return false
	}
	q.items = append(q.items, sized[T]{item, bytes})
	q.bytes += bytes
	q.signal()
	return true
}

func (q *queue[T]) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take returns the first items, as many as have up to maxBytes, but one at
// least; nil when stop is closed first.
func (q *queue[T]) take(stop <-chan struct{}, maxBytes int) []T {
	for {
		if out := q.first(maxBytes); out != nil {
			return out
		}
		select {
		case <-q.wake:
		case <-stop:
			return nil
		}
	}
}

func (q *queue[T]) first(maxBytes int) []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) == 0 {
		return nil
	}
	var out []T
	size := 0
	for _, i := range q.items {
		if size += i.bytes; size > maxBytes && len(out) > 0 {
			break
		}
		out = append(out, i.item)
		q.bytes -= i.bytes
	}
	clear(q.items[:len(out)])
	if q.items = q.items[len(out):]; len(q.items) == 0 {
		q.items = nil
	} else {
		q.signal()
	}
	return out
}

// size returns how many bytes wait.
func (q *queue[T]) size() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bytes
}
