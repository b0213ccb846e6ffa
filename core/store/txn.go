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
	writes   int32 // so far
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
	if w.writes == 0 {
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
	old, there, history := w.s.get(op.Key)
	if there {
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
	if !there || old.lease != v.lease {
		w.s.attach(v.lease, op.Key)
	}
	out := &PutResult{}
	if op.Prev && there {
		prev := old.of(op.Key)
		out.Prev = &prev
	}
	w.set(op.Key, v, history)
	return out
}

func (w *writer) remove(op DeleteOp) *DeleteResult {
	var gone []KeyValue
	w.s.each(op.Range, w.revision, func(key string, v version) bool {
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
	old, _, history := w.s.get(key)
	w.s.detach(old.lease, key)
	w.set(key, version{mod: w.revision}, history)
}

// set gives a key its next version after those of its history.
func (w *writer) set(key string, v version, history entry) {
	v.place = w.writes
	w.s.set(key, v, history)
	w.writes++
}

// holds reports whether all compares do, before the command's own writes.
func (s *space) holds(all []Compare) bool {
	for _, c := range all {
		found, holds := false, true
		s.each(c.Range, s.revision, func(_ string, v version) bool {
			found = true
			holds = c.holds(&v)
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
func (s *space) check(op Op) error {
	room := int64(maxReadBytes)
	return s.checkOp(op, 0, &room)
}

// checkOp is check of an operation that is so deep in a transaction, of which room is
// how much its ranges may still return.
func (s *space) checkOp(op Op, depth int, room *int64) error {
	if depth == 0 {
		ops := 0
		if err := shape(op, MaxTxnOps, &ops); err != nil {
			return err
		}
	}
	switch {
	case op.Range != nil:
		at, err := s.readable(op.Range.Revision)
		if err == nil && depth > 0 && !s.fits(*op.Range, at, room) {
			err = ErrTooLarge
		}
		return err
	case op.Put != nil:
		return s.checkPut(*op.Put)
	case op.Txn != nil:
		return s.checkTxn(*op.Txn, depth, room)
	}
	return nil
}

// fits takes what a range returns from the room there is, and reports whether it was
// enough.
func (s *space) fits(op RangeOp, at int64, room *int64) bool {
	if op.CountOnly {
		return true
	}
	// What is sorted may be cut to the largest of all.
	sorted := op.Order != Unordered && !op.byKey()
	var n, sum, largest int64
	s.each(op.Range, at, func(key string, v version) bool {
		if !op.within(&v) {
			return true
		}
		bytes := versionBytes + int64(len(key))
		if !op.KeysOnly {
			bytes += int64(len(v.value))
		}
		n, sum, largest = n+1, sum+bytes, max(largest, bytes)
		return sorted || sum <= *room && n != op.Limit
	})
	if sorted && op.Limit > 0 {
		sum = min(sum, min(n, op.Limit)*largest)
	}
	*room -= sum
	return *room >= 0
}

func (s *space) checkPut(op PutOp) error {
	if op.Lease != 0 {
		if _, ok := s.leases.Get(op.Lease); !ok {
			return ErrLeaseNotFound
		}
	}
	if (op.KeepValue || op.KeepLease) && !s.has(op.Key) {
		return ErrKeyNotFound
	}
	return nil
}

func (s *space) checkTxn(op TxnOp, depth int, room *int64) error {
	if depth == 0 {
		if _, err := touched([]Op{{Txn: &op}}); err != nil {
			return err
		}
	}
	branch := op.Else
	if s.holds(op.Compares) {
		branch = op.Then
	}
	for _, inner := range branch {
		if err := s.checkOp(inner, depth+1, room); err != nil {
			return err
		}
	}
	return nil
}

// shape finds what is wrong with an operation whatever the space holds, also in
// branches that would not be taken. A transaction may have so many compares, and
// operations of each branch, as width says, and an inner one what that leaves: so
// none is deeper than MaxTxnOps. ops counts all operations, inner ones included.
func shape(op Op, width int, ops *int) error {
	set := 0
	for _, there := range []bool{op.Range != nil, op.Put != nil, op.Delete != nil, op.Txn != nil} {
		if there {
			set++
		}
	}
	switch {
	case set != 1:
		return ErrInvalid
	case op.Range != nil && op.Range.Key == "", op.Put != nil && op.Put.Key == "", op.Delete != nil && op.Delete.Key == "":
		return ErrEmptyKey
	case op.Put != nil && op.Put.KeepValue && len(op.Put.Value) > 0:
		return ErrValueProvided
	case op.Put != nil && op.Put.KeepLease && op.Put.Lease != 0:
		return ErrLeaseProvided
	case op.Txn != nil:
		return op.Txn.shape(width, ops)
	}
	return nil
}

func (t *TxnOp) shape(width int, ops *int) error {
	width -= max(len(t.Compares), len(t.Then), len(t.Else))
	if width < 0 {
		return ErrTooManyOps
	}
	for _, c := range t.Compares {
		switch {
		case c.Key == "":
			return ErrEmptyKey
		case c.Target == TargetKey || c.Target > TargetLease || c.Relation > NotEqual:
			return ErrInvalid
		}
	}
	for _, branch := range [][]Op{t.Then, t.Else} {
		for _, inner := range branch {
			if *ops++; *ops > maxInnerOps {
				return ErrTooManyOps
			}
			if err := shape(inner, width, ops); err != nil {
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
