package follow

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/api/etcd/etcdtest"
	"github.com/fairlead/fairlead/core/store"
)

// A server answers from its own state.
func TestLocal(t *testing.T) {
	n := newNode(t, 1, "n1")
	var leads atomic.Bool
	leads.Store(true)
	now := time.Unix(1000, 0)
	l, err := NewLocal(LocalConfig{Name: "n1", Cluster: 0xabcd, View: n.store.View, Leader: leads.Load, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	changed := l.Changed()
	l.Applied()
	select {
	case <-changed:
		t.Error("nothing changed")
	default:
	}
	for i := range 12 {
		n.put(fmt.Sprintf("k/%02d", i), "v")
	}
	n.put("other", "v")
	last := n.delete("k/03")
	waitApplied(t, n.store, last)
	l.Applied()
	select {
	case <-changed:
	default:
		t.Error("it does not say that it changed")
	}
	st := l.State()
	if st.Cluster() != 0xabcd || st.Revision() != last {
		t.Errorf("%x, %d", st.Cluster(), st.Revision())
	}
	if kv, ok := st.Get("k/02"); !ok || string(kv.Value) != "v" {
		t.Errorf("%+v, %v", kv, ok)
	}
	if _, ok := st.Get("k/03"); ok {
		t.Error("a deleted key is there")
	}
	if keys := slices.Collect(st.Range("k/0")); len(keys) != 9 || keys[3].Key != "k/04" {
		t.Errorf("%v", brief(keys))
	}
	for range st.Range("") {
		break
	}
	if s := l.Status(); s.Server != "n1" || !s.Current.Equal(now) || s.Problem != "" || s.Revision != last {
		t.Errorf("%+v", s)
	}
	// Without a leader it ages.
	leads.Store(false)
	then := now
	now = now.Add(time.Minute)
	if s := l.Status(); !s.Current.Equal(then) || s.Problem == "" {
		t.Errorf("%+v", s)
	}
	if _, err := NewLocal(LocalConfig{}); err == nil {
		t.Error("nothing is enough")
	}
}

func waitApplied(t *testing.T, s *etcdtest.Server, revision int64) {
	t.Helper()
	if _, err := s.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.View().Stats(store.System).Revision; got < revision {
		t.Fatalf("revision %d, want %d", got, revision)
	}
}

func TestRangeOf(t *testing.T) {
	for prefix, want := range map[string]store.Range{
		"":         {Key: store.FromKey, End: store.FromKey},
		"a":        {Key: "a", End: "b"},
		"/x/":      {Key: "/x/", End: "/x0"},
		"a\xff":    {Key: "a\xff", End: "b"},
		"\xff\xff": {Key: "\xff\xff", End: store.FromKey},
	} {
		if got := rangeOf(prefix); got != want {
			t.Errorf("%q: %+v, want %+v", prefix, got, want)
		}
	}
}
