package raft

import (
	"context"
	"slices"
	"sync"
	"time"
)

// room knows which servers have little room left on their disks. Writes are
// refused before a majority cannot write any more: then reads go on, and what is
// needed to make room.
type room struct {
	h      *Host
	mu     sync.Mutex
	low    bool                 // here
	others map[uint64]time.Time // when another one said last that it is low
}

const (
	roomEvery = time.Second
	// roomHolds is how long another server's word counts.
	roomHolds = 5 * roomEvery
)

func newRoom(h *Host) *room { return &room{h: h, others: map[uint64]time.Time{}} }

// watch looks at this server's disk, and tells the leader. A new leader is told at
// once: two servers with full disks that hand the leadership to each other would
// never hear otherwise of the other one, which leads whenever it looks.
func (r *room) watch() {
	ticker := time.NewTicker(roomEvery)
	defer ticker.Stop()
	r.look()
	for {
		changed := r.h.Changed()
		select {
		case <-ticker.C:
			r.look()
		case <-changed:
			if r.low { // nobody else sets it
				r.tell(false)
			}
		case <-r.h.stop:
			return
		}
	}
}

func (r *room) look() {
	h := r.h
	free, err := h.cfg.Disk.FreeBytes()
	low := err == nil && free < h.cfg.Sizes.FreeBytes
	r.mu.Lock()
	was := r.low
	r.low = low
	r.mu.Unlock()
	h.metrics.free.Set(float64(free))
	switch {
	case low && !was:
		h.cfg.Log.Error("the disk of the store is nearly full: free some space", "free_bytes", free, "want_bytes", h.cfg.Sizes.FreeBytes)
	case was && !low:
		h.cfg.Log.Info("the disk of the store has room again", "free_bytes", free)
	}
	switch {
	case !low && !was:
	case h.State().Leads():
		r.handOver()
	default:
		r.tell(!low)
	}
}

// tell tells the leader, if that is another server, whether this one has room.
func (r *room) tell(has bool) {
	state := r.h.State()
	if state.Leads() || state.Leader == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), roomEvery)
	defer cancel()
	_, _ = r.h.cfg.Transport.Ask(ctx, state.Leader, Question{Room: &has}) // said again in a second
}

// heard notes what another server says of its disk.
func (r *room) heard(id uint64, has bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if has {
		delete(r.others, id)
	} else {
		r.others[id] = time.Now()
	}
}

// lowOnes returns the voters with little room, this one included.
func (r *room) lowOnes() (low, voters []uint64) {
	voters = r.h.Members().GetVoters()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range voters {
		if id == r.h.cfg.ID && r.low || id != r.h.cfg.ID && time.Since(r.others[id]) < roomHolds {
			low = append(low, id)
		}
	}
	return low, voters
}

// gone reports whether no more may be written: so few servers have room that what
// is written now would be the last.
func (r *room) gone() bool {
	low, voters := r.lowOnes()
	return len(low) > 0 && len(voters)-len(low) < len(voters)/2+1
}

// handOver gives the leadership to a server that has room, if this one has not.
func (r *room) handOver() {
	low, voters := r.lowOnes()
	if r.gone() || !slices.Contains(low, r.h.cfg.ID) {
		return
	}
	for _, id := range voters {
		if !slices.Contains(low, id) {
			_ = r.h.ask(func() { r.h.replica.Transfer(id) })
			return
		}
	}
}
