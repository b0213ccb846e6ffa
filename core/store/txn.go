package store

import (
	"bytes"
	"cmp"
	"slices"
)

// writer carries out one command's operations: all writes are of one revision.
type writer struct {
	s        *space
	revision int64
	events   []Event
}

// do carries out an operation that check found good.
func (w *writer) do(op Op) OpResult {
	switch {
	case op.Range != nil:
		// A range of a transaction sees its writes, which have the next revision.
		r, err := w.view().read(*op.Range)
		if err != nil {
			r = &RangeResult{} // Invariant: check refused it before
		}
		return OpResult{Range: r}
	case op.Put != nil:
		return OpResult{Put: w.put(*op.Put)}
	case op.Delete != nil:
		return OpResult{Delete: w.remove(*op.Delete)}
	case op.Txn != nil:
		return OpResult{Txn: w.txn(*op.Txn)}
	}
	return OpResult{}
}

// view is the space as it is after the writes so far.
func (w *writer) view() *space {
	if len(w.events) == 0 {
		return w.s
	}
	now := *w.s
	now.revision = w.revision
	return &now
}

func (w *writer) txn(op TxnOp) *TxnResult {
	ok := w.s.holds(op.Compares)
	branch := op.Else
	if ok {
		branch = op.Then
	}
	out := &TxnResult{Succeeded: ok, Results: make([]OpResult, len(branch))}
	for i, inner := range branch {
		out.Results[i] = w.do(inner)
	}
	return out
}

func (w *writer) put(op PutOp) *PutResult {
	v := version{mod: w.revision, create: w.revision, number: 1, lease: op.Lease, value: op.Value}
	old := w.s.get(op.Key)
	if old != nil {
		v.create, v.number = old.create, old.number+1
		if op.KeepValue {
			v.value = old.value
		}
		if op.KeepLease {
			v.lease = old.lease
		}
		if old.lease != v.lease {
			w.s.detach(old.lease, op.Key)
		}
	}
	if old == nil || old.lease != v.lease {
		w.s.attach(v.lease, op.Key)
	}
	out := &PutResult{}
	event := w.set(op.Key, v, old)
	if op.Prev {
		out.Prev = event.Prev
	}
	return out
}

func (w *writer) remove(op DeleteOp) *DeleteResult {
	var gone []KeyValue
	w.s.each(op.Range, w.revision, func(key string, v *version) bool {
		gone = append(gone, v.of(key))
		return true
	})
	for i := range gone {
		w.drop(gone[i].Key)
	}
	out := &DeleteResult{Deleted: int64(len(gone))}
	if op.Prev {
		out.Prev = gone
	}
	return out
}

// drop ends a key that is there.
func (w *writer) drop(key string) {
	old := w.s.get(key)
	w.s.detach(old.lease, key)
	w.set(key, version{mod: w.revision}, old)
}

func (w *writer) set(key string, v version, old *version) *Event {
	v.place = int32(len(w.events))
	event := Event{KV: v.of(key)}
	if old != nil {
		prev := old.of(key)
		event.Prev = &prev
	}
	w.s.set(key, v)
	w.events = append(w.events, event)
	return &event
}

// holds reports whether all compares do, before the command's own writes.
func (s *space) holds(all []Compare) bool {
	for _, c := range all {
		found, holds := false, true
		s.each(c.Range, s.revision, func(_ string, v *version) bool {
			found = true
			holds = c.holds(v)
			return holds
		})
		if !holds || !found && (c.Target == TargetValue || !c.holds(&version{})) {
			return false
		}
	}
	return true
}

func (c Compare) holds(v *version) bool {
	var r int
	switch c.Target {
	case TargetVersion:
		r = cmp.Compare(v.number, c.Number)
	case TargetCreate:
		r = cmp.Compare(v.create, c.Number)
	case TargetMod:
		r = cmp.Compare(v.mod, c.Number)
	case TargetLease:
		r = cmp.Compare(int64(v.lease), c.Number)
	case TargetValue:
		r = bytes.Compare(v.value, c.Value)
	case TargetKey:
		return false // Invariant: check refused it before
	}
	switch c.Relation {
	case Equal:
		return r == 0
	case Greater:
		return r > 0
	case Less:
		return r < 0
	case NotEqual:
		return r != 0
	}
	return false
}

// check says why an operation cannot be carried out, before any part of it is.
// Keys and leases are looked up in the space as it is before the command, and
// on the branches that would be taken then, as etcd does.
func (s *space) check(op Op, depth int) error {
	switch {
	case op.Range != nil:
		if op.Range.Key == "" {
			return ErrEmptyKey
		}
		_, err := s.readable(op.Range.Revision)
		return err
	case op.Put != nil:
		return s.checkPut(*op.Put)
	case op.Delete != nil:
		if op.Delete.Key == "" {
			return ErrEmptyKey
		}
		return nil
	case op.Txn != nil:
		return s.checkTxn(*op.Txn, depth)
	}
	return ErrInvalid
}

func (s *space) checkPut(op PutOp) error {
	switch {
	case op.Key == "":
		return ErrEmptyKey
	case op.KeepValue && len(op.Value) > 0:
		return ErrValueProvided
	case op.KeepLease && op.Lease != 0:
		return ErrLeaseProvided
	case (op.KeepValue || op.KeepLease) && s.get(op.Key) == nil:
		return ErrKeyNotFound
	}
	if op.Lease != 0 {
		if _, ok := s.leases.Get(op.Lease); !ok {
			return ErrLeaseNotFound
		}
	}
	return nil
}

func (s *space) checkTxn(op TxnOp, depth int) error {
	if depth == 0 {
		ops := 0
		if err := shape(Op{Txn: &op}, 0, &ops); err != nil {
			return err
		}
		if _, err := touched([]Op{{Txn: &op}}); err != nil {
			return err
		}
	}
	branch := op.Else
	if s.holds(op.Compares) {
		branch = op.Then
	}
	for _, inner := range branch {
		if err := s.check(inner, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// shape finds what is wrong with an operation whatever the space holds. ops
// counts all operations of a transaction, inner ones included.
func shape(op Op, depth int, ops *int) error {
	set := 0
	for _, there := range []bool{op.Range != nil, op.Put != nil, op.Delete != nil, op.Txn != nil} {
		if there {
			set++
		}
	}
	if set != 1 {
		return ErrInvalid
	}
	if op.Txn == nil {
		return nil
	}
	if depth >= maxTxnDepth || max(len(op.Txn.Compares), len(op.Txn.Then), len(op.Txn.Else)) > MaxTxnOps {
		return ErrTooManyOps
	}
	for _, c := range op.Txn.Compares {
		switch {
		case c.Key == "":
			return ErrEmptyKey
		case c.Target == TargetKey || c.Target > TargetLease || c.Relation > NotEqual:
			return ErrInvalid
		}
	}
	for _, branch := range [][]Op{op.Txn.Then, op.Txn.Else} {
		for _, inner := range branch {
			if *ops++; *ops > maxInnerOps {
				return ErrTooManyOps
			}
			if err := shape(inner, depth+1, ops); err != nil {
				return err
			}
		}
	}
	return nil
}

// footprint is what a list of operations may write.
type footprint struct {
	puts    []string // in order
	deletes []Range
}

// touched returns what may be written, or ErrDuplicateKey if a key may be
// written twice: it would have two versions of one revision. Deleting twice is
// all right, as the second deletes nothing. Of an inner transaction both
// branches count, but may write the same keys.
func touched(ops []Op) (footprint, error) {
	var all footprint
	for _, op := range ops {
		var next footprint
		switch {
		case op.Put != nil:
			next.puts = []string{op.Put.Key}
		case op.Delete != nil:
			next.deletes = []Range{op.Delete.Range}
		case op.Txn != nil:
			then, err := touched(op.Txn.Then)
			if err != nil {
				return all, err
			}
			other, err := touched(op.Txn.Else)
			if err != nil {
				return all, err
			}
			next.puts = append(slices.Clone(then.puts), other.puts...)
			next.deletes = append(slices.Clone(then.deletes), other.deletes...)
		}
		if all.clashes(next) {
			return all, ErrDuplicateKey
		}
		all.puts = append(all.puts, next.puts...)
		all.deletes = append(all.deletes, next.deletes...)
	}
	return all, nil
}

func (f footprint) clashes(o footprint) bool {
	for _, key := range o.puts {
		if slices.Contains(f.puts, key) || covered(f.deletes, key) {
			return true
		}
	}
	return slices.ContainsFunc(f.puts, func(key string) bool { return covered(o.deletes, key) })
}

func covered(ranges []Range, key string) bool {
	return slices.ContainsFunc(ranges, func(r Range) bool { return r.Contains(key) })
}
