package store

import "slices"

// Op is one operation; exactly one field is set.
type Op struct {
	Range  *RangeOp
	Put    *PutOp
	Delete *DeleteOp
	Txn    *TxnOp
}

// RangeOp reads. Of a View it may ask for an old revision; within a transaction
// it sees what was written before it.
type RangeOp struct {
	Range
	Revision int64 // 0: the newest
	Limit    int64 // at most so many; 0: all
	Order    Order
	Target   Target
	KeysOnly bool
	// CountOnly wants the number of keys in the range, whatever the bounds below.
	CountOnly bool
	// Bounds, inclusive; 0 is none.
	MinMod, MaxMod, MinCreate, MaxCreate int64
}

// PutOp writes one key.
type PutOp struct {
	Key   string
	Value []byte
	Lease LeaseID // 0: none
	Prev  bool    // the result has what was there
	// KeepValue and KeepLease leave that as it was: the key has to be there.
	KeepValue, KeepLease bool
}

// DeleteOp deletes the keys of a range.
type DeleteOp struct {
	Range
	Prev bool // the result has what was there
}

// TxnOp does Then if all compares hold, Else otherwise; either as a whole.
type TxnOp struct {
	Compares   []Compare
	Then, Else []Op
}

// Compare is a condition on a key, or on each key of a range. A key that is not
// there has the versions, revisions and lease 0, and no value: a compare of its
// value fails, whatever the relation.
type Compare struct {
	Range
	Target   Target
	Relation Relation
	Number   int64  // what to compare with, but for TargetValue
	Value    []byte // for TargetValue
}

// Target is a property of a key. The numbers are in the log.
type Target uint8

// The targets.
const (
	TargetKey     Target = 0 // to sort by only
	TargetVersion Target = 1
	TargetCreate  Target = 2
	TargetMod     Target = 3
	TargetValue   Target = 4
	TargetLease   Target = 5 // to compare only
)

// Relation is between the key's property and that of the compare.
type Relation uint8

// The relations. The numbers are in the log.
const (
	Equal    Relation = 0
	Greater  Relation = 1
	Less     Relation = 2
	NotEqual Relation = 3
)

// Order is that of the result of a range.
type Order uint8

// The orders. Unordered is by key, or ascending if a Target is named; a limit is
// then one of the keys that are sorted.
const (
	Unordered  Order = 0
	Ascending  Order = 1
	Descending Order = 2
)

// OpResult is the result of the Op whose field is the same.
type OpResult struct {
	Range  *RangeResult
	Put    *PutResult
	Delete *DeleteResult
	Txn    *TxnResult
}

// RangeResult is what a range holds.
type RangeResult struct {
	KVs   []KeyValue
	More  bool  // Limit cut it
	Count int64 // keys in the range, whatever Limit and bounds
}

// PutResult is the result of a PutOp.
type PutResult struct {
	Prev *KeyValue
}

// DeleteResult is the result of a DeleteOp.
type DeleteResult struct {
	Deleted int64
	Prev    []KeyValue
}

// TxnResult is the result of a TxnOp, an element for each operation done.
type TxnResult struct {
	Succeeded bool // the compares held
	Results   []OpResult
}

// Writes reports whether the operation may write.
func (o Op) Writes() bool {
	switch {
	case o.Put != nil, o.Delete != nil:
		return true
	case o.Txn != nil:
		for _, branch := range [][]Op{o.Txn.Then, o.Txn.Else} {
			if slices.ContainsFunc(branch, Op.Writes) {
				return true
			}
		}
	}
	return false
}

// size is about how many bytes the operation takes in the log.
func (o *Op) size() int {
	switch {
	case o.Range != nil:
		return 32 + len(o.Range.Key) + len(o.Range.End)
	case o.Put != nil:
		return 32 + len(o.Put.Key) + len(o.Put.Value)
	case o.Delete != nil:
		return 8 + len(o.Delete.Key) + len(o.Delete.End)
	case o.Txn != nil:
		n := 8
		for _, c := range o.Txn.Compares {
			n += 24 + len(c.Key) + len(c.End) + len(c.Value)
		}
		for _, branch := range [][]Op{o.Txn.Then, o.Txn.Else} {
			for i := range branch {
				n += branch[i].size()
			}
		}
		return n
	}
	return 0
}
