package history

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// answers holds each answer to what the store held at the revision that it names.
func (l *log) answers(operations []Operation) error {
	var errs []error
	for _, o := range operations {
		a := o.Answer
		fail := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("%v: %s", o, fmt.Sprintf(format, args...)))
		}
		switch now := l.holds(o.Key, a.Revision); {
		case o.Kind == Swap && a.Done:
			if was := l.holds(o.Key, a.Revision-1); was.Modified != o.Expect {
				fail("before that it was %v", was)
			}
		case a.Done && o.Kind != Get: // resolve has looked
		case o.Kind == Delete && now.Modified != 0:
			fail("there is %v", now)
		case o.Kind == Swap && now.Modified == o.Expect:
			fail("that is what the key was at")
		case (o.Kind == Get || o.Kind == Swap) && a.Item != now:
			fail("at that revision it was %v", now)
		}
	}
	return errors.Join(errs...)
}

// order holds revisions to real time: a call that begins after the answer of another
// one has no older answer, and a write a newer one. A stale read may be older than
// all that, but not than another read of the same server: only reads, as a server
// that is behind by more than a heartbeat passes on the leader's answer to a write
// before it has that write.
func order(operations []Operation) error {
	var fresh []Operation
	servers := map[string][]Operation{}
	for _, o := range operations {
		if !o.Stale {
			fresh = append(fresh, o)
		}
		if o.Kind == Get {
			servers[o.Server] = append(servers[o.Server], o)
		}
	}
	errs := []error{rises("", fresh)}
	for name, of := range servers {
		errs = append(errs, rises("at "+name+" ", of))
	}
	return errors.Join(errs...)
}

func rises(where string, operations []Operation) error {
	calls, returns := slices.Clone(operations), slices.Clone(operations)
	slices.SortFunc(calls, func(a, b Operation) int { return cmp.Compare(a.Call, b.Call) })
	slices.SortFunc(returns, func(a, b Operation) int { return cmp.Compare(a.Return, b.Return) })
	var errs []error
	var newest Operation
	for _, o := range calls {
		for len(returns) > 0 && returns[0].Return < o.Call {
			if returns[0].Answer.Revision >= newest.Answer.Revision {
				newest = returns[0]
			}
			returns = returns[1:]
		}
		if r := o.Answer.Revision; r < newest.Answer.Revision || o.writes() && r == newest.Answer.Revision {
			errs = append(errs, fmt.Errorf("%srevisions go back: %v, after %v", where, o, newest))
		}
	}
	return errors.Join(errs...)
}
