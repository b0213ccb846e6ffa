package raft

import "sync"

// queue hands jobs to one goroutine. It has no limit: what is in it is bounded by
// what the replica gives out before it hears of the end.
type queue[T any] struct {
	mu   sync.Mutex
	jobs []T
	wake chan struct{} // of one: there may be jobs
}

func newQueue[T any]() *queue[T] { return &queue[T]{wake: make(chan struct{}, 1)} }

func (q *queue[T]) add(job T) {
	q.mu.Lock()
	q.jobs = append(q.jobs, job)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take returns all jobs there are, nil when stop is closed first.
func (q *queue[T]) take(stop <-chan struct{}) []T {
	for {
		q.mu.Lock()
		jobs := q.jobs
		q.jobs = nil
		q.mu.Unlock()
		if len(jobs) > 0 {
			return jobs
		}
		select {
		case <-q.wake:
		case <-stop:
			return nil
		}
	}
}

// signal wakes everybody who waits, once for each time that it is raised.
type signal struct {
	mu sync.Mutex
	ch chan struct{}
}

func newSignal() *signal { return &signal{ch: make(chan struct{})} }

func (s *signal) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ch
}

func (s *signal) raise() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.ch)
	s.ch = make(chan struct{})
}
