package raft

import (
	"slices"
	"time"

	etcdraft "go.etcd.io/raft/v3"
)

const (
	// goneSettle is how long what a process sent before its end may still be on the
	// way within this one.
	goneSettle = 10 * time.Millisecond
	// goneStep is the time between candidates. If all stood at once, they would split
	// the vote, and wait for an election timeout after all.
	goneStep = 50 * time.Millisecond
	// goneHolds is how long a server counts as gone that was said to be, in elections.
	goneHolds = 2
)

// Gone implements Handler. If it was the leader, this server is ready to vote for
// another at once, and the first of those that are left stands for election after a
// step, the second after two, and so on. That is safe whatever the evidence is worth:
// without a majority that has no leader either, nothing happens, and a word of the
// leader ends it.
func (h *Host) Gone(id uint64) { h.later(goneSettle, func() { h.mourn(id) }) }

// later runs f on the loop in a while.
func (h *Host) later(in time.Duration, f func()) {
	time.AfterFunc(in, func() {
		select {
		case h.asks <- f:
		case <-h.stop:
		}
	})
}

func (h *Host) mourn(id uint64) {
	h.gone[id] = time.Now()
	state := h.replica.State()
	if state.Leader != id || state.Leads() {
		return
	}
	if err := h.replica.ForgetLeader(); err != nil {
		h.cfg.Log.Warn("the leader of the store is gone, and this server waits for it nevertheless", "leader", id, "error", err)
		return
	}
	h.metrics.forgotten.Inc()
	living := h.living()
	h.cfg.Log.Info("the process of the store's leader is gone: another is elected", "leader", id, "term", state.Term)
	if rank := slices.Index(living, h.cfg.ID); rank >= 0 {
		h.stand(state.Term, time.Duration(rank+1)*goneStep, time.Duration(len(living))*goneStep)
	}
}

// living returns the voters that were not said to be gone lately, in their order.
func (h *Host) living() []uint64 {
	conf := h.replica.Conf()
	all := slices.Concat(conf.GetVoters(), conf.GetVotersOutgoing())
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(id uint64) bool {
		at, said := h.gone[id]
		return said && time.Since(at) < goneHolds*h.cfg.ElectionTimeout
	})
}

// stand stands for election after a while, and again in rounds, as long as nobody
// leads and the time for an election by silence has not come: another server may
// have heard later that the leader is gone.
func (h *Host) stand(term uint64, in, round time.Duration) {
	if in > h.cfg.ElectionTimeout {
		return
	}
	wait := in
	var try func()
	try = func() {
		state := h.replica.State()
		if state.Term != term || state.Leader != 0 || state.Role != etcdraft.StateFollower && state.Role != etcdraft.StatePreCandidate {
			return
		}
		if err := h.replica.Campaign(); err != nil {
			h.cfg.Log.Warn("this server cannot stand for election", "error", err)
			return
		}
		if wait += round; wait <= h.cfg.ElectionTimeout {
			h.later(round, try)
		}
	}
	h.later(in, try)
}
