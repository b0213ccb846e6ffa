package raft

import (
	"slices"
	"sync/atomic"
	"time"
)

// stall watches for a disk that hangs, which is no error. A leader with such a disk
// goes on: the others' disks make a majority, and its heartbeats touch none. But it
// applies nothing more, so that nobody who asked it is answered. It hands the
// leadership over, and then is a follower that lags.
type stall struct {
	h       *Host
	writing atomic.Pointer[time.Time] // since when; nil: not now
	late    *time.Timer               // of the write; it may also run when there is none
}

// newStall begins to watch, until the host stops.
func newStall(h *Host) *stall {
	s := &stall{h: h, late: time.NewTimer(h.cfg.ElectionTimeout)}
	h.running.Go(func() { h.guarded(s.watch) })
	return s
}

func (s *stall) begins() {
	now := time.Now()
	s.writing.Store(&now)
	s.late.Reset(s.h.cfg.ElectionTimeout)
}

func (s *stall) ends() {
	s.writing.Store(nil)
	s.late.Stop()
}

// watch wakes when a write is late, and each tick until it ends. The timer is the
// appender's as well, which begins and ends writes meanwhile: so it is set again here
// whenever a write is under way.
func (s *stall) watch() {
	defer s.late.Stop()
	var said *time.Time
	for {
		select {
		case <-s.late.C:
		case <-s.h.stop:
			return
		}
		since := s.writing.Load()
		if since == nil {
			continue
		}
		if rest := s.h.cfg.ElectionTimeout - time.Since(*since); rest > 0 {
			s.late.Reset(rest)
			continue
		}
		s.late.Reset(s.h.tick())
		if since != said {
			said = since
			s.h.cfg.Log.Error("the disk of the store hangs: a write has not ended for an election timeout; look at the disk", "leads", s.h.State().Leads())
		}
		s.handOver(time.Since(*since))
	}
}

// handOver gives the leadership away: to another server each election timeout, as
// one that is down cannot take it.
func (s *stall) handOver(hangs time.Duration) {
	h := s.h
	if !h.State().Leads() {
		return
	}
	others := slices.DeleteFunc(slices.Clone(h.Members().GetVoters()), func(id uint64) bool { return id == h.cfg.ID })
	if len(others) == 0 {
		return
	}
	to := others[int(hangs/h.cfg.ElectionTimeout)%len(others)]
	_ = h.ask(func() { h.replica.Transfer(to) })
}
