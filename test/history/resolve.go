package history

import (
	"errors"
	"fmt"
)

// resolve finds out by the log what became of calls without an answer, and leaves
// out those that never happened: every event is of one call, and every write has its
// events.
func (l *log) resolve(operations []Operation) ([]Operation, error) {
	type place struct {
		key string
		at  int64
	}
	var (
		errs    []error
		out     []Operation
		made    = map[place]bool{}
		writers = map[string]Operation{} // by value
		lost    = map[string][]Operation{}
	)
	claim := func(o Operation) {
		for _, key := range o.keys() {
			e, found := l.event(key, o.Answer.Revision)
			switch {
			case !found:
				errs = append(errs, fmt.Errorf("%v: no watch has shown that", o))
			case e.Deleted != (o.Kind == Delete), o.Kind != Delete && e.Item.Value != o.Value:
				errs = append(errs, fmt.Errorf("%v: watches have shown %v", o, e.Event))
			case made[place{key, o.Answer.Revision}]:
				errs = append(errs, fmt.Errorf("%v: another call made that revision", o))
			}
			made[place{key, o.Answer.Revision}] = true
		}
	}
	for _, o := range operations {
		switch {
		case o.Kind == Put || o.Kind == Swap:
			writers[o.Value] = o
		case o.Kind == Delete && o.Outcome == Unknown:
			lost[o.Key] = append(lost[o.Key], o)
		}
		if o.Outcome != Done {
			continue
		}
		out = append(out, o)
		if o.writes() {
			claim(o)
		}
	}
	for _, at := range l.revisions {
		for _, e := range l.at[at] {
			if made[place{e.Key, at}] {
				continue
			}
			var o Operation
			switch by, known := writers[e.Item.Value]; {
			case e.Deleted && len(lost[e.Key]) > 0:
				// Any of them may be the one; the first had the most time.
				o, lost[e.Key] = lost[e.Key][0], lost[e.Key][1:]
			case !e.Deleted && known && by.Outcome == Unknown:
				o = by
			case !e.Deleted && known:
				errs = append(errs, fmt.Errorf("%v: the call was %v", e.Event, by))
				continue
			default:
				errs = append(errs, fmt.Errorf("%v: nobody called for that", e.Event))
				continue
			}
			if o.Call > e.first {
				errs = append(errs, fmt.Errorf("%v was seen before anybody called for it: %v", e.Event, o))
			}
			o.Outcome, o.Return, o.Answer = Done, e.first, Answer{Revision: at, Done: true}
			claim(o)
			out = append(out, o)
		}
	}
	return out, errors.Join(errs...)
}

// keys are those that the call writes.
func (o Operation) keys() []string {
	if o.Also != "" {
		return []string{o.Key, o.Also}
	}
	return []string{o.Key}
}
