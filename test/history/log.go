package history

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// log is what all watches together have shown.
type log struct {
	revisions []int64 // ascending
	at        map[int64][]shown
	keys      map[string][]version
}

// shown is an event, and when it was first seen.
type shown struct {
	Event
	first int64
}

// version is what became of a key at a revision.
type version struct {
	at   int64
	item Item
}

// newLog joins streams. They have to agree.
func newLog(streams []Stream) (*log, error) {
	l := &log{at: map[int64][]shown{}, keys: map[string][]version{}}
	var errs []error
	for _, s := range streams {
		for _, b := range s.Batches {
			for _, e := range b.Events {
				if err := l.add(e, b.At); err != nil {
					errs = append(errs, fmt.Errorf("watch of %s from %d: %w", s.Name, s.From, err))
				}
			}
		}
	}
	l.revisions = slices.Sorted(maps.Keys(l.at))
	return l, errors.Join(append(errs, l.replay())...)
}

func (l *log) add(e Event, at int64) error {
	of := l.at[e.Item.Modified]
	for i, o := range of {
		if o.Key != e.Key {
			continue
		}
		of[i].first = min(o.first, at)
		if o.Deleted != e.Deleted || o.Item != e.Item {
			return fmt.Errorf("%v is a %v elsewhere", e, o.Event)
		}
		if o.Before == nil {
			of[i].Before = e.Before
		}
		if e.Before != nil && *e.Before != *of[i].Before {
			return fmt.Errorf("before %v there was %v, elsewhere %v", e, *e.Before, *of[i].Before)
		}
		return nil
	}
	l.at[e.Item.Modified] = append(of, shown{e, at})
	return nil
}

// replay fills keys, and holds each event to what was there before.
func (l *log) replay() error {
	var errs []error
	for _, at := range l.revisions {
		for _, e := range l.at[at] {
			was := l.holds(e.Key, at-1)
			want := Item{Value: e.Item.Value, Created: at, Modified: at, Version: 1}
			if was.Modified != 0 {
				want.Created, want.Version = was.Created, was.Version+1
			}
			now := e.Item
			if e.Deleted {
				want, now = Item{}, Item{}
			}
			if now != want {
				errs = append(errs, fmt.Errorf("%v: after %v it should be %v", e.Event, was, want))
			}
			if e.Deleted && was.Modified == 0 {
				errs = append(errs, fmt.Errorf("%v: there was nothing", e.Event))
			}
			if e.Before != nil && *e.Before != was {
				errs = append(errs, fmt.Errorf("%v: it says that there was %v before, but there was %v", e.Event, *e.Before, was))
			}
			l.keys[e.Key] = append(l.keys[e.Key], version{at, want})
		}
	}
	return errors.Join(errs...)
}

// holds returns the item of a key at a revision.
func (l *log) holds(key string, revision int64) Item {
	all := l.keys[key]
	i, found := slices.BinarySearchFunc(all, revision, func(v version, r int64) int { return int(v.at - r) })
	if !found {
		i--
	}
	if i < 0 {
		return Item{}
	}
	return all[i].item
}

// event returns what happened to a key at a revision.
func (l *log) event(key string, revision int64) (shown, bool) {
	for _, e := range l.at[revision] {
		if e.Key == key {
			return e, true
		}
	}
	return shown{}, false
}
