package store

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
)

// read answers a RangeOp from a space whose revision may be asked for.
func (s *space) read(op RangeOp) (*RangeResult, error) {
	if op.Key == "" {
		return nil, ErrEmptyKey
	}
	at, err := s.readable(op.Revision)
	if err != nil {
		return nil, err
	}
	out := &RangeResult{}
	// Only what comes in the order of keys may be cut before it is sorted. Without an
	// order it is cut all the same, and its first keys are sorted: clients see what
	// etcd does.
	early := op.Limit
	if op.Order != Unordered && !op.byKey() || op.bounded() {
		early = 0
	}
	s.each(op.Range, at, func(key string, v version) bool {
		out.Count++
		if op.CountOnly || early > 0 && int64(len(out.KVs)) > early || !op.within(&v) {
			return true
		}
		out.KVs = append(out.KVs, v.of(key))
		return true
	})
	op.sort(out.KVs)
	if op.Limit > 0 && int64(len(out.KVs)) > op.Limit {
		out.KVs, out.More = out.KVs[:op.Limit], true
	}
	if op.KeysOnly {
		for i := range out.KVs {
			out.KVs[i].Value = nil
		}
	}
	return out, nil
}

// readable returns the revision to read at.
func (s *space) readable(revision int64) (int64, error) {
	switch {
	case revision <= 0:
		return s.revision, nil
	case revision > s.revision:
		return 0, ErrFutureRevision
	case revision < s.compacted:
		return 0, ErrCompacted
	}
	return revision, nil
}

// byKey reports whether the result is in the order of keys, lowest first.
func (op RangeOp) byKey() bool { return op.Target == TargetKey && op.Order != Descending }

func (op RangeOp) bounded() bool { return op.MinMod|op.MaxMod|op.MinCreate|op.MaxCreate != 0 }

func (op RangeOp) within(v *version) bool {
	return v.mod >= op.MinMod && (op.MaxMod == 0 || v.mod <= op.MaxMod) &&
		v.create >= op.MinCreate && (op.MaxCreate == 0 || v.create <= op.MaxCreate)
}

func (op RangeOp) sort(kvs []KeyValue) {
	if op.byKey() {
		return
	}
	slices.SortStableFunc(kvs, func(a, b KeyValue) int {
		c := 0
		switch op.Target {
		case TargetVersion:
			c = cmp.Compare(a.Version, b.Version)
		case TargetCreate:
			c = cmp.Compare(a.Create, b.Create)
		case TargetMod:
			c = cmp.Compare(a.Mod, b.Mod)
		case TargetValue:
			c = bytes.Compare(a.Value, b.Value)
		default:
			c = strings.Compare(a.Key, b.Key)
		}
		if op.Order == Descending {
			return -c
		}
		return c
	})
}
