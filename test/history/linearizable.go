package history

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// Patience is what porcupine is given. Not to know within that time is a failure.
const Patience = 15 * time.Second

// anyRevision is of a write that nobody knows the revision of.
const anyRevision = -1

// held is what a key holds in the model.
type held struct {
	value    string
	modified int64 // 0: nothing
	since    int64 // modified is not below it, if it is anyRevision
}

// Linearizable searches for one order of all calls that explains every answer. Calls
// with an unknown outcome may have happened at any time since they began; that they
// never happened is to be the last of all.
func Linearizable(operations []Operation) error {
	var all []porcupine.Operation
	for _, o := range operations {
		if o.Outcome == Refused || o.Stale || o.Outcome == Unknown && o.Kind == Get {
			continue
		}
		back := o.Return
		if o.Outcome == Unknown {
			back = math.MaxInt64
		}
		for _, key := range o.keys() {
			part := o
			part.Key, part.Also = key, ""
			all = append(all, porcupine.Operation{ClientId: o.Client, Input: part, Output: part.Answer, Call: o.Call, Return: back})
		}
	}
	model := porcupine.Model{
		Init:      func() any { return held{} },
		Step:      func(state, in, out any) (bool, any) { return step(state.(held), in.(Operation), out.(Answer)) },
		Partition: byKey,
		DescribeOperation: func(in, _ any) string {
			return in.(Operation).String()
		},
	}
	if got := porcupine.CheckOperationsTimeout(model, all, Patience); got != porcupine.Ok {
		return fmt.Errorf("porcupine says %s of %d calls", got, len(all))
	}
	return nil
}

func byKey(all []porcupine.Operation) [][]porcupine.Operation {
	parts := map[string][]porcupine.Operation{}
	for _, o := range all {
		key := o.Input.(Operation).Key
		parts[key] = append(parts[key], o)
	}
	return slices.Collect(maps.Values(parts))
}

// step carries a call out, and reports whether its answer is right.
func step(s held, o Operation, a Answer) (bool, held) {
	unknown := o.Outcome == Unknown
	switch {
	case unknown && (o.Kind == Put || o.Kind == Swap && (s.modified == o.Expect || s.modified == anyRevision && o.Expect > s.since)):
		return true, held{o.Value, anyRevision, s.floor()}
	case unknown && o.Kind == Delete && s.modified != 0:
		return true, held{since: s.floor()}
	case unknown:
		return true, s
	case o.Kind == Swap && a.Done && !s.fits(o.Expect, s.value):
		return false, s
	case o.Kind != Get && a.Done:
		if o.Kind == Delete && s.modified == 0 || a.Revision <= s.floor() {
			return false, s
		}
		if o.Kind == Delete {
			return true, held{since: a.Revision}
		}
		return true, held{o.Value, a.Revision, a.Revision}
	case o.Kind == Delete:
		return s.modified == 0 && a.Revision >= s.floor(), s
	case o.Kind == Swap && a.Item.Modified == o.Expect:
		return false, s
	case !s.fits(a.Item.Modified, a.Item.Value) || a.Revision < s.floor():
		return false, s
	}
	return true, held{s.value, a.Item.Modified, max(s.since, a.Item.Modified)} // now it is known
}

// fits reports whether the key may hold a value of a revision.
func (s held) fits(modified int64, value string) bool {
	if s.modified == anyRevision {
		return modified > s.since && value == s.value
	}
	return modified == s.modified && value == s.value
}

// floor is the newest revision that the key is known to have been changed at.
func (s held) floor() int64 { return max(s.modified, s.since) }
