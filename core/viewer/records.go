package viewer

import (
	"log/slog"
	"time"

	"github.com/fairlead/fairlead/core/membership"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/record"
	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/swim/wire"
	"github.com/fairlead/fairlead/core/view"
)

// records reads the records of nodes: each definition once, though its vector
// changes often.
type records struct {
	log  *slog.Logger
	last map[model.NodeID]*read
}

// read is what was read of one node.
type read struct {
	hash    wire.Hash
	record  *view.Record // nil: not readable
	problem string
}

func newRecords(log *slog.Logger) records {
	return records{log: log, last: make(map[model.NodeID]*read)}
}

func (r *records) forget(id model.NodeID) { delete(r.last, id) }

// seen turns a member into an event of the view. While a part of its record is
// on its way, the record before it stays.
func (r *records) seen(m membership.Member, at time.Time) view.Seen {
	e := view.Seen{At: at, Member: view.Member{ID: m.ID, Name: m.Name, Addr: m.Addr, Value: m.Value, Since: m.Since}}
	if m.RecordEpoch == 0 || !m.RecordHere() {
		return e
	}
	last := r.last[m.ID]
	if last == nil || last.hash != m.Hash {
		last = r.read(m, at)
		r.last[m.ID] = last
	}
	if last.record == nil {
		e.Problem = last.problem
		return e
	}
	e.Record = last.record.With(record.DecodeVector(m.Vector, len(last.record.States)), at)
	return e
}

func (r *records) read(m membership.Member, at time.Time) *read {
	definition, err := record.Decode(m.Definition)
	if err != nil {
		r.log.Warn("the record of a node cannot be read; what it said before stays", "node", m.Name, "id", m.ID, "error", err)
		return &read{hash: m.Hash, problem: err.Error()}
	}
	return &read{hash: m.Hash, record: view.NewRecord(definition, make([]model.InstanceState, len(definition.Instances)), at)}
}

// recordsHere reports whether the records of all live members are here.
func recordsHere(s *membership.Snapshot) bool {
	for i := range s.Members {
		m := &s.Members[i]
		if m.Value.State.Live() && !m.RecordHere() {
			return false
		}
	}
	return true
}

func isReaped(e membership.Event) bool { return e.Kind == swim.EventReaped }
