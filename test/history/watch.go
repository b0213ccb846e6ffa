package history

import (
	"errors"
	"fmt"
)

// Event is one change that a watch shows.
type Event struct {
	Key     string
	Deleted bool
	Item    Item  // as it is now; of a deletion only Modified
	Before  *Item // as it was; nil if the watch does not tell
}

func (e Event) String() string {
	if e.Deleted {
		return fmt.Sprintf("deletion of %s at %d", e.Key, e.Item.Modified)
	}
	return fmt.Sprintf("%s = %v", e.Key, e.Item)
}

// Batch is one response of a watch. Without events it is a bookmark: all up to
// Revision has been shown.
type Batch struct {
	Revision int64
	Events   []Event
	At       int64 // when it came
}

// Stream is what one watch of all keys has shown.
type Stream struct {
	Name    string
	From    int64 // the first revision that it is about
	Batches []Batch
}

// reached is the revision up to which there is nothing more to come.
func (s Stream) reached() int64 {
	reached := s.From - 1
	for _, b := range s.Batches {
		if len(b.Events) == 0 {
			reached = max(reached, b.Revision)
		}
		for _, e := range b.Events {
			reached = max(reached, e.Item.Modified)
		}
	}
	return reached
}

// check holds a stream to what a watch promises. log is what all streams together
// have shown.
func (s Stream) check(log *log) error {
	var errs []error
	fail := func(promise, format string, args ...any) {
		errs = append(errs, fmt.Errorf("watch of %s from %d: not %s: %s", s.Name, s.From, promise, fmt.Sprintf(format, args...)))
	}
	seen := map[int64]map[string]bool{}
	last, bookmark := int64(0), int64(0)
	for _, b := range s.Batches {
		if len(b.Events) == 0 {
			bookmark = max(bookmark, b.Revision)
			continue
		}
		begins := true
		for _, e := range b.Events {
			at := e.Item.Modified
			switch {
			case at < s.From:
				fail("resumable", "%v is older than what was asked for", e)
			case seen[at][e.Key]:
				fail("unique", "%v comes twice", e)
			case at < last:
				fail("ordered", "%v comes after revision %d", e, last)
			case at == last && begins:
				fail("atomic", "%v comes apart from others of its revision", e)
			case at <= bookmark:
				fail("bookmarkable", "%v comes after the bookmark %d", e, bookmark)
			case at > b.Revision:
				fail("bookmarkable", "%v comes in a response of revision %d", e, b.Revision)
			}
			if seen[at] == nil {
				seen[at] = map[string]bool{}
			}
			seen[at][e.Key] = true
			begins = begins && at == last
			last = max(last, at)
		}
	}
	for _, at := range log.revisions {
		if at < s.From || at > s.reached() {
			continue
		}
		for _, e := range log.at[at] {
			if !seen[at][e.Key] {
				fail("reliable", "%v is missing, though %d was reached", e.Event, s.reached())
			}
		}
	}
	return errors.Join(errs...)
}
