package history

import (
	"errors"
	"fmt"
)

// History is what clients were told.
type History struct {
	Operations []Operation
	Streams    []Stream
}

// Check reports what no correct store would have told. The streams have to begin
// before the first write and to have reached the last.
func (h History) Check() error {
	l, err := newLog(h.Streams)
	errs := []error{err}
	for _, s := range h.Streams {
		errs = append(errs, s.check(l))
	}
	resolved, err := l.resolve(h.Operations)
	errs = append(errs, err, l.answers(resolved), order(resolved), Linearizable(resolved))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("history of %d calls and %d watches: %w", len(h.Operations), len(h.Streams), err)
	}
	return nil
}

// State is what the store held when the streams had shown a revision.
func (h History) State(revision int64) (map[string]Item, error) {
	l, err := newLog(h.Streams)
	if err != nil {
		return nil, err
	}
	state := map[string]Item{}
	for key := range l.keys {
		if item := l.holds(key, revision); item.Modified != 0 {
			state[key] = item
		}
	}
	return state, nil
}
