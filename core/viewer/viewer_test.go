package viewer_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/core/membership"
	"github.com/fairlead/fairlead/core/membership/memtransport"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/record"
	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/view"
	"github.com/fairlead/fairlead/core/viewer"
	"github.com/fairlead/fairlead/test/transcript"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is an EpochStore that can refuse.
type memory struct {
	ceiling uint64
	saves   int
	err     error
}

func (m *memory) Load() (uint64, error) { return m.ceiling, m.err }

func (m *memory) Save(c uint64) error {
	if m.err != nil {
		return m.err
	}
	m.saves++
	m.ceiling = c
	return nil
}

func addr(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 7400)
}

// node is a member with a viewer.
type node struct {
	*membership.Membership
	viewer *viewer.Viewer
	store  *memory
	log    *transcript.Buffer
}

type cluster struct {
	t   *testing.T
	net *memtransport.Network
}

func inBubble(t *testing.T, f func(t *testing.T, c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t, &cluster{t: t, net: memtransport.New(memtransport.Config{Seed: 1, MinDelay: time.Millisecond, MaxDelay: 2 * time.Millisecond})})
	})
}

func (c *cluster) start(i int, join ...string) *node {
	c.t.Helper()
	end, err := c.net.Listen(addr(i))
	if err != nil {
		c.t.Fatal(err)
	}
	n := &node{store: &memory{}, log: &transcript.Buffer{}}
	n.Membership, err = membership.Start(membership.Config{Name: fmt.Sprint("n", i), Cluster: "test", Join: join, Swim: swim.DefaultLocal(), Transport: end})
	if err != nil {
		c.t.Fatal(err)
	}
	n.viewer, err = viewer.Start(viewer.Config{Members: n, Epochs: n.store, Log: slog.New(slog.NewTextHandler(n.log, nil))})
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

func (n *node) stop(t *testing.T) {
	t.Helper()
	n.viewer.Close()
	n.viewer.Close()
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}

func (c *cluster) await(what string, within time.Duration, cond func() bool) {
	c.t.Helper()
	for start := time.Now(); ; <-time.After(10 * time.Millisecond) {
		synctest.Wait()
		if cond() {
			return
		}
		if time.Since(start) > within {
			c.t.Fatalf("not within %v: %s", within, what)
		}
	}
}

func definition(i int) record.Definition {
	k := model.ServiceKey{Namespace: "default", Name: "web"}
	return record.Definition{
		Services:  []model.Service{{Key: k, Ports: []model.ServicePort{{Port: 80, Protocol: model.TCP}}, Registered: 1}},
		Instances: []model.Instance{{ID: fmt.Sprint("web-", i), Service: k, Addr: netip.AddrPortFrom(addr(i).Addr(), 9000), Weight: 1}},
	}
}

func (n *node) say(t *testing.T, d record.Definition, states ...model.InstanceState) {
	t.Helper()
	b, err := record.Encode(d)
	if err != nil {
		t.Fatal(err)
	}
	v, err := record.EncodeVector(states)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.SetRecord(b, v); err != nil {
		t.Fatal(err)
	}
}

func (n *node) endpoints() string {
	var out []string
	for s := range n.viewer.Latest().Services() {
		for _, e := range s.Endpoints {
			out = append(out, fmt.Sprintf("%s@%v/%v", e.Instance, e.Addr.Addr(), e.State))
		}
	}
	return strings.Join(out, " ")
}

func TestViewFollowsTheCluster(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		a := c.start(1)
		defer a.stop(t)
		c.await("alone is complete", time.Second, func() bool { return a.viewer.Latest().Completeness == view.Alone })
		a.say(t, definition(1), model.InstancePassing)
		c.await("own instance", time.Second, func() bool { return a.endpoints() == "web-1@10.0.0.1/ready" })

		b := c.start(2, addr(1).String())
		if got := b.viewer.Latest().Completeness; got != view.Incomplete {
			t.Errorf("before it heard of anybody the view is %v", got)
		}
		b.say(t, definition(2), model.InstancePassing)
		both := "web-1@10.0.0.1/ready web-2@10.0.0.2/ready"
		c.await("both see both", 3*time.Second, func() bool {
			return len(a.endpoints()) == len(both) && len(b.endpoints()) == len(both) && b.viewer.Latest().Completeness == view.Exchanged
		})
		// Each view is published, and followers are woken.
		changed := a.viewer.Changed()
		epoch := a.viewer.Latest().Epoch
		b.say(t, definition(2), model.InstanceCritical)
		<-changed
		c.await("the failing one is gone", time.Second, func() bool { return a.endpoints() == "web-1@10.0.0.1/ready" })
		b.say(t, definition(2), model.InstancePassing)
		c.await("and back", time.Second, func() bool { return len(a.endpoints()) == len(both) })
		if got := a.viewer.Latest().Epoch; got != epoch+2 {
			t.Errorf("epoch %d after two changes, was %d", got, epoch)
		}
		b.stop(t)
		id := b.Snapshot().Self.ID
		c.await("suspect", 10*time.Second, func() bool { return a.viewer.Latest().Node(id).Role == view.RoleSuspect })
		if !strings.Contains(a.endpoints(), "suspect") {
			t.Errorf("endpoints %s, want the suspect marked", a.endpoints())
		}
		c.await("dead", 10*time.Second, func() bool { return a.viewer.Latest().Node(id).Role == view.RoleFailed })
		if got := a.endpoints(); got != "web-1@10.0.0.1/ready" {
			t.Errorf("endpoints %s after the death", got)
		}
		if reason, since := a.viewer.Latest().Removal(model.ServiceKey{Namespace: "default", Name: "web"}, id, "web-2"); reason != view.Dead || since.IsZero() {
			t.Errorf("removed because %v, suspected since %v", reason, since)
		}
	})
}

func TestUnreachableContactsTimeOut(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		a := c.start(1, addr(9).String())
		defer a.stop(t)
		<-time.After(14 * time.Second)
		if got := a.viewer.Latest().Completeness; got != view.Incomplete {
			t.Errorf("%v after 14 s", got)
		}
		c.await("timeout", 2*time.Second, func() bool { return a.viewer.Latest().Completeness == view.TimedOut })
	})
}

func TestUnreadableRecordKeepsTheOneBefore(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		a := c.start(1)
		defer a.stop(t)
		a.say(t, definition(1), model.InstancePassing)
		c.await("own instance", time.Second, func() bool { return a.endpoints() != "" })
		for range 3 {
			if err := a.SetRecord([]byte{0xff}, []byte{1}); err != nil {
				t.Fatal(err)
			}
		}
		self := a.Snapshot().Self.ID
		c.await("the problem is shown", time.Second, func() bool { return a.viewer.Latest().Node(self).Problem != "" })
		if a.endpoints() == "" || strings.Count(a.log.String(), "cannot be read") != 1 {
			t.Errorf("endpoints %q, log:\n%s", a.endpoints(), a.log)
		}
		if err := a.SetRecord(nil, nil); err != nil {
			t.Fatal(err)
		}
		c.await("no record at all", time.Second, func() bool { return a.endpoints() == "" && a.viewer.Latest().Len() == 0 })
	})
}

// script is a membership that says what it is told.
type script struct {
	mu      sync.Mutex
	table   *membership.Snapshot
	updates chan membership.Update
	end     error
}

func (s *script) Snapshot() *membership.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table
}

func (s *script) set(table *membership.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table = table
}

func (s *script) Events(ctx context.Context, _ uint64, _ bool) iter.Seq2[membership.Update, error] {
	return func(yield func(membership.Update, error) bool) {
		for {
			select {
			case u, more := <-s.updates:
				if !more {
					yield(membership.Update{}, s.end)
					return
				}
				if !yield(u, nil) {
					return
				}
			case <-ctx.Done():
				yield(membership.Update{}, ctx.Err())
				return
			}
		}
	}
}

func newScript() *script {
	self := membership.Member{ID: 1, Name: "n1", Self: true}
	return &script{table: &membership.Snapshot{Self: self, Members: []membership.Member{self}, Unheard: 1}, updates: make(chan membership.Update)}
}

func event(id model.NodeID, name string) membership.Update {
	return membership.Update{Event: membership.Event{Kind: swim.EventUpdated, Member: membership.Member{ID: id, Name: name}}}
}

func TestResetBringsTheViewInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		registry := prometheus.NewPedanticRegistry()
		v, err := viewer.Start(viewer.Config{Members: s, Metrics: registry})
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		if _, err := viewer.Start(viewer.Config{Members: s, Metrics: registry}); err == nil {
			t.Error("two viewers in one registry")
		}
		s.updates <- event(2, "n2")
		s.updates <- event(3, "n3")
		table := *s.table
		table.Members = append(table.Members[:1:1], membership.Member{ID: 3, Name: "renamed"}, membership.Member{ID: 4, Name: "n4"})
		s.updates <- membership.Update{Reset: &table}
		synctest.Wait()
		got := v.Latest()
		if got.NodeCount() != 3 || got.Node(2) != nil || got.Node(3).Name != "renamed" || got.Node(4) == nil {
			t.Errorf("%d nodes after the reset, 2: %v, 3: %v", got.NodeCount(), got.Node(2), got.Node(3))
		}
		s.updates <- membership.Update{Event: membership.Event{Kind: swim.EventReaped, Member: membership.Member{ID: 4}}}
		synctest.Wait()
		if v.Latest().Node(4) != nil {
			t.Error("the reaped one is still there")
		}
		for name, want := range map[string]float64{"fairlead_view_resets_total": 1, "fairlead_view_nodes": 2, "fairlead_view_complete": 0} {
			if got := sum(t, registry, name); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
	})
}

// sum adds up a metric over its labels.
func sum(t *testing.T, from prometheus.Gatherer, name string) (total float64) {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				total += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
			return total
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func TestViewIsIncompleteWhileDefinitionsAreMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		missing := membership.Member{ID: 2, Name: "n2", RecordEpoch: 1, Vector: []byte{1}}
		missing.Hash[0] = 1
		s.table.Exchanged, s.table.Members = true, append(s.table.Members, missing)
		v, err := viewer.Start(viewer.Config{Members: s, CompleteAfter: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		<-time.After(59 * time.Second)
		if got := v.Latest().Completeness; got != view.Incomplete {
			t.Errorf("the view is %v while a definition is missing", got)
		}
		<-time.After(2 * time.Second)
		if got := v.Latest().Completeness; got != view.TimedOut {
			t.Errorf("the view is %v after the time", got)
		}
	})
}

// The table of members may tell of an exchange, and hold all that came with it,
// before the viewer has the first event of it. A view that was called complete
// then would take away what it does not show yet.
func TestViewIsIncompleteUntilItShowsWhatWasExchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		v, err := viewer.Start(viewer.Config{Members: s, CompleteAfter: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		table := *s.table
		table.Exchanged, table.Seq = true, 3
		s.set(&table)
		for seq := uint64(1); seq <= 3; seq++ {
			<-time.After(time.Second)
			if got := v.Latest(); got.Completeness != view.Incomplete {
				t.Errorf("the view is %v with %d of 4 nodes", got.Completeness, got.NodeCount())
			}
			u := event(model.NodeID(seq+1), fmt.Sprint("n", seq+1))
			u.Event.Seq = seq
			if seq == 2 { // what comes meanwhile does not put it off
				later := table
				later.Seq = 9
				s.set(&later)
			}
			s.updates <- u
			synctest.Wait()
		}
		if got := v.Latest(); got.Completeness != view.Exchanged || got.NodeCount() != 4 {
			t.Errorf("the view is %v with %d of 4 nodes", got.Completeness, got.NodeCount())
		}
	})
}

func TestEpochsGoOnOverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{}
		var last uint64
		for run := range 3 {
			s := newScript()
			v, err := viewer.Start(viewer.Config{Members: s, Epochs: store})
			if err != nil {
				t.Fatal(err)
			}
			if first := v.Latest().Epoch; first <= last {
				t.Errorf("run %d begins at epoch %d, %d was used", run, first, last)
			}
			s.updates <- event(2, "n2")
			synctest.Wait()
			last = v.Latest().Epoch
			v.Close()
		}
		if store.saves != 3 {
			t.Errorf("written %d times in 3 runs", store.saves)
		}
	})
}

func TestCeilingThatCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("disk full")
		if _, err := viewer.Start(viewer.Config{Members: newScript(), Epochs: &memory{err: full}}); !errors.Is(err, full) {
			t.Errorf("started: %v", err)
		}
		store, log, s := &memory{}, &transcript.Buffer{}, newScript()
		v, err := viewer.Start(viewer.Config{Members: s, Epochs: store, Log: slog.New(slog.NewTextHandler(log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		store.err = full
		for i := range view.EpochBlock + 10 {
			s.updates <- event(2, fmt.Sprint(i))
		}
		synctest.Wait()
		if got := v.Latest().Node(2).Name; got != fmt.Sprint(view.EpochBlock+9) {
			t.Errorf("the view stands still at %s", got)
		}
		if n := strings.Count(log.String(), "disk full"); n != 1 {
			t.Errorf("logged %d times", n)
		}
	})
}

func TestEndOfEventsIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, s := &transcript.Buffer{}, newScript()
		v, err := viewer.Start(viewer.Config{Members: s, Log: slog.New(slog.NewTextHandler(log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		s.end = errors.New("broken")
		close(s.updates)
		synctest.Wait()
		v.Close()
		if !strings.Contains(log.String(), "broken") {
			t.Errorf("log:\n%s", log)
		}
	})
}

func TestEpochFile(t *testing.T) {
	file := viewer.EpochFile(filepath.Join(t.TempDir(), "view-epoch"))
	if got, err := file.Load(); got != 0 || err != nil {
		t.Errorf("without a file: %d, %v", got, err)
	}
	for _, want := range []uint64{65536, 1 << 60} {
		if err := file.Save(want); err != nil {
			t.Fatal(err)
		}
		if got, err := file.Load(); got != want || err != nil {
			t.Errorf("loaded %d, %v, want %d", got, err, want)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(string(file))); err != nil || len(left) != 1 {
		t.Errorf("%d files, %v", len(left), err)
	}
	if err := os.WriteFile(string(file), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := file.Load(); err == nil || !strings.Contains(err.Error(), "restore it") {
		t.Errorf("damaged: %v", err)
	}
	for _, bad := range []viewer.EpochFile{viewer.EpochFile(t.TempDir()), viewer.EpochFile(filepath.Join(t.TempDir(), "no", "where"))} {
		if err := bad.Save(1); err == nil || !strings.Contains(err.Error(), "make the directory writable") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := viewer.EpochFile(t.TempDir()).Load(); err == nil {
		t.Error("read a directory")
	}
}
