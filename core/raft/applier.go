package raft

import (
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/fairlead/fairlead/core/raft/replica"
	"github.com/fairlead/fairlead/core/store"
)

// applyJob is what the applier does next: entries, or a snapshot to go on from.
type applyJob struct {
	apply     *replica.Apply
	install   *pb.SnapshotMetadata
	installed chan error
}

// applier owns the state machine.
func (h *Host) applier() {
	for {
		jobs := h.applies.take(h.stop)
		if jobs == nil {
			return
		}
		for _, j := range jobs {
			if j.install != nil {
				j.installed <- h.goOnFrom(j.install)
				continue
			}
			if err := h.apply(j.apply); err != nil {
				h.report(report{failed: err})
				return
			}
		}
	}
}

// goOnFrom replaces the state machine.
func (h *Host) goOnFrom(of *pb.SnapshotMetadata) error {
	_, data, err := h.snaps.Load(of.GetIndex(), of.GetTerm())
	if err != nil {
		return err
	}
	m, err := store.Decode(data)
	if err != nil {
		return err
	}
	h.machine = m
	h.metrics.snapshots.WithLabelValues("installed").Inc()
	v := m.View()
	h.publish(v)
	h.lessor.reset(v)
	if h.cfg.OnApply != nil {
		h.cfg.OnApply(Applied{View: v})
	}
	return nil
}

// apply carries out entries, publishes the state, and then says what came of
// them: who hears of a write can read it here.
func (h *Host) apply(a *replica.Apply) error {
	var done []outcome
	told := Applied{}
	for _, e := range a.Entries {
		if e.GetType() != pb.EntryNormal || len(e.GetData()) == 0 {
			continue
		}
		commands, err := store.DecodeCommands(e.GetData())
		if err != nil {
			return fmt.Errorf("raft: entry %d: %w", e.GetIndex(), err)
		}
		results := h.machine.Apply(e.GetIndex(), e.GetTerm(), commands)
		for i := range commands {
			h.lessor.applied(&commands[i], &results[i])
			if commands[i].Client != nil {
				done = append(done, outcome{callOf(commands[i].Client), results[i]})
			}
			told.Spaces = append(told.Spaces, commands[i].Space)
		}
		told.Results = append(told.Results, results...)
	}
	told.View = h.machine.View()
	h.publish(told.View)
	if h.cfg.OnApply != nil && len(told.Results) > 0 {
		h.cfg.OnApply(told)
	}
	h.metrics.applied.Add(float64(len(told.Results)))
	h.waiters.tell(done)
	h.report(report{applied: a, view: told.View})
	return nil
}
