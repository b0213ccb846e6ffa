package store

import (
	"slices"
	"testing"
	"time"
)

func TestLessor(t *testing.T) {
	s := newScript(t)
	for id := LeaseID(1); id <= 3; id++ {
		s.fine(Command{Grant: &Grant{ID: id, TTLSeconds: int64(id) * 10}})
	}
	l := NewLessor(s.m.View(), 100*time.Second)
	one, two, three := Lease{User, 1}, Lease{User, 2}, Lease{User, 3}
	due := func(at time.Duration, limit int, want ...Lease) {
		t.Helper()
		if got := l.Due(at*time.Second, limit); !slices.Equal(got, want) {
			t.Errorf("invariant whole-time: due at %d s: %v, want %v", at, got, want)
		}
	}
	due(109, 9)
	if ttl, ok := l.Renew(one, 109*time.Second); !ok || ttl != 10*time.Second {
		t.Errorf("%v, %v", ttl, ok)
	}
	due(118, 9)
	due(119, 9, one)
	if _, ok := l.Renew(one, 119*time.Second); ok {
		t.Error("a lease that is over was renewed")
	}
	due(119, 9)      // it is being revoked
	due(120, 1, one) // that was lost
	due(120, 9, two)
	l.Revoked(one)
	l.Revoked(one)
	l.Revoked(two)
	if left, ok := l.Left(three, 129*time.Second); !ok || left != time.Second {
		t.Errorf("%v, %v", left, ok)
	}
	if at, ok := l.Next(); !ok || at != 130*time.Second {
		t.Errorf("%v, %v", at, ok)
	}
	l.Extend(125 * time.Second)
	due(130, 9)
	if left, ok := l.Left(three, 129*time.Second); !ok || left != 26*time.Second {
		t.Errorf("%v, %v", left, ok)
	}
	l.Granted(three, 1<<60, 0) // for ever, without an overflow
	due(1000, 9)
	l.Revoked(three)
	if _, ok := l.Next(); ok {
		t.Error("there is a lease left")
	}
}

// The longest lease does not end early because its end is beyond what a clock says.
func TestLongestLease(t *testing.T) {
	s := newScript(t)
	s.fine(Command{Grant: &Grant{ID: -1, TTLSeconds: MaxTTLSeconds}})
	late := 100 * 365 * 24 * time.Hour
	l := NewLessor(s.m.View(), late)
	id := Lease{User, -1}
	if ttl, ok := l.Renew(id, late); !ok || ttl != MaxTTLSeconds*time.Second {
		t.Errorf("%v, %v", ttl, ok)
	}
	if due := l.Due(late+time.Hour, 9); len(due) != 0 {
		t.Errorf("invariant whole-time: due at once: %v", due)
	}
}
