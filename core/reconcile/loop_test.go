package reconcile_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/view"
	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/transfer"
	"github.com/fairlead/fairlead/test/scale"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const passing = model.InstancePassing

func TestTicksSayUnchangedInFewBytes(t *testing.T) {
	inBubble(t, view.Alone, func(r *rig) {
		r.views.apply(runs(2, passing, "web", "db"))
		r.serve()
		r.pass(4*time.Second + 50*time.Millisecond)
		calls := r.p.history()
		if got, want := r.kinds(), []string{"snapshot", "unchanged", "unchanged", "unchanged", "unchanged"}; !slices.Equal(got, want) {
			t.Fatalf("calls %v, want %v", got, want)
		}
		for i, c := range calls[1:] {
			if c.bytes > 200 {
				t.Errorf("unchanged takes %d bytes, want at most 200", c.bytes)
			}
			if gap := c.at.Sub(calls[i].at); gap != time.Second {
				t.Errorf("calls %v apart, want 1 s", gap)
			}
		}
		r.same()
		if st := r.loop.Status(); !st.Connected || st.Services != 2 || st.Endpoints != 2 || !st.Complete || st.Generation != 1 {
			t.Errorf("status %+v", st)
		}
	})
}

func TestChangesGoAtOnceAndTogether(t *testing.T) {
	inBubble(t, view.Alone, func(r *rig) {
		r.views.apply(runs(2, passing, "web"))
		r.serve()
		r.pass(300 * time.Millisecond)
		begun := time.Now()
		for i := range 30 { // the first one goes, the others wait for the gap
			r.views.apply(runs(model.NodeID(3+i), passing, "web"))
			r.pass(100 * time.Microsecond)
		}
		r.pass(20 * time.Millisecond)
		calls := r.p.history()
		if got, want := r.kinds(), []string{"snapshot", "delta", "delta"}; !slices.Equal(got, want) {
			t.Fatalf("calls %v, want %v", got, want)
		}
		if first := calls[1].at.Sub(begun); first > time.Millisecond {
			t.Errorf("the first change went after %v", first)
		}
		if gap := calls[2].at.Sub(calls[1].at); gap < 10*time.Millisecond || gap > 12*time.Millisecond {
			t.Errorf("the second call came %v after the first, want 10 ms", gap)
		}
		r.same()
		if n := calls[2].delta.Changes[0].Upserted.Len(); n != 29 {
			t.Errorf("the second delta has %d endpoints, want 29", n)
		}
	})
}

func TestRemovalsSayWhy(t *testing.T) {
	inBubble(t, view.Exchanged, func(r *rig) {
		r.views.apply(runs(2, passing, "web"), runs(3, passing, "web"), runs(4, passing, "web"), runs(5, passing, "web"), runs(6, passing, "web"))
		r.serve()
		suspect := becomes(2, model.StateSuspect)
		r.views.apply(suspect)
		r.pass(time.Second)
		r.views.apply(becomes(2, model.StateDead), becomes(3, model.StateLeft), runs(4, model.InstanceCritical, "web"),
			runs(5, model.InstanceDrained, "web"), runs(6, passing))
		r.pass(time.Second)
		r.same()
		got := map[string]dataplane.Removal{}
		for _, c := range r.p.history() {
			for _, change := range c.delta.Changes {
				for _, rem := range change.Removed {
					got[rem.Endpoint.Addr.Addr().String()] = rem
				}
			}
		}
		for addr, want := range map[string]dataplane.RemovalReason{
			"10.9.0.2": dataplane.RemovedDead, "10.9.0.3": dataplane.RemovedLeft, "10.9.0.4": dataplane.RemovedFailing,
			"10.9.0.5": dataplane.RemovedDrained, "10.9.0.6": dataplane.RemovedDeregistered,
		} {
			if got[addr].Reason != want {
				t.Errorf("%s removed because %v, want %v", addr, got[addr].Reason, want)
			}
		}
		if since := got["10.9.0.2"].SuspectedSince; !since.Equal(suspect.At) {
			t.Errorf("the dead one was suspected since %v, want %v", since, suspect.At)
		}
	})
}

func TestNewProcessBeginsWithItsState(t *testing.T) {
	inBubble(t, view.Alone, func(r *rig) {
		r.views.apply(runs(2, passing, "web"))
		lose := r.serve()
		r.pass(100 * time.Millisecond)
		if err := lose(); err != nil {
			t.Fatal(err)
		}
		if r.loop.Status().Connected {
			t.Error("still connected")
		}
		r.views.apply(runs(3, passing, "web"))
		lose = r.serve() // a process whose work outlived it
		r.pass(100 * time.Millisecond)
		if err := lose(); err != nil {
			t.Fatal(err)
		}
		r.p.restart()
		r.serve() // one that knows nothing
		r.pass(100 * time.Millisecond)
		if got, want := r.kinds(), []string{"snapshot", "delta", "snapshot"}; !slices.Equal(got, want) {
			t.Fatalf("calls %v, want %v", got, want)
		}
		r.same()
	})
}

// Whatever a provider does wrong, it has what the view says soon after, and
// what it had stays until then.
func TestFaults(t *testing.T) {
	failed := fmt.Errorf("%w: no room", dataplane.ErrFailed)
	for _, c := range []struct {
		name  string
		f     fault
		kinds []string // from the faulty call on, up to the next tick
		log   string
	}{
		{"fails", fault{err: failed}, []string{"none", "delta"}, "no room"},
		{"fails though it applied", fault{err: failed, applied: true}, []string{"delta", "unchanged"}, "no room"},
		{"base mismatch", fault{err: dataplane.ErrBaseMismatch}, []string{"none", "snapshot"}, "base generation"},
		{"invalid", fault{err: dataplane.ErrInvalid}, []string{"none", "snapshot"}, "invalid"},
		{"old generation", fault{err: dataplane.ErrOldGeneration}, []string{"none", "snapshot"}, "old generation"},
		{"busy", fault{err: dataplane.ErrBusy}, []string{"none", "delta"}, "busy"},
		{"limit", fault{err: dataplane.ErrLimit}, []string{"none", "delta"}, "without this limit"},
		{"old session", fault{err: dataplane.ErrOldSession}, []string{"none", "delta"}, "another agent controls"},
		{"hangs", fault{hang: true}, []string{"none", "delta"}, "why the provider is slow"},
		{"hangs and applies", fault{hang: true, applied: true}, []string{"delta", "unchanged"}, "why the provider is slow"},
		{"lies upwards", fault{answer: 99}, []string{"delta", "snapshot"}, "99 was answered"},
		{"lies downwards", fault{answer: 1}, []string{"delta", "snapshot"}, "1 was answered"},
		{"lost everything", fault{forget: true}, []string{"delta", "snapshot"}, "base generation"},
		{"ends the stream early", fault{err: failed, early: true}, []string{"none", "delta"}, "no room"},
		{"slow", fault{delay: 3 * time.Second}, []string{"delta"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, view.Alone, func(r *rig) {
				r.views.apply(runs(2, passing, "web"))
				r.p.fault = func(n int) fault {
					if n == 1 {
						return c.f
					}
					return fault{}
				}
				r.serve()
				r.pass(100 * time.Millisecond)
				r.views.apply(runs(3, passing, "web"), runs(4, passing, "db"))
				r.pass(6100 * time.Millisecond)
				r.same()
				got := r.kinds()[1:]
				if len(got) < len(c.kinds) || !slices.Equal(got[:len(c.kinds)], c.kinds) {
					t.Errorf("calls %v, want them to begin with %v", got, c.kinds)
				}
				if i := slices.IndexFunc(got[len(c.kinds):], func(k string) bool { return k != "unchanged" }); i >= 0 {
					t.Errorf("calls %v, want nothing but unchanged after %v", got, c.kinds)
				}
				if n := strings.Count(r.log.String(), "was not reconciled"); (n == 1) != (c.log != "") || !strings.Contains(r.log.String(), c.log) {
					t.Errorf("%d failures in the log, want one with %q:\n%s", n, c.log, r.log)
				}
			})
		})
	}
}

func TestLastingFailureIsLoggedOnceAndTriedLessOften(t *testing.T) {
	inBubble(t, view.Alone, func(r *rig) {
		r.views.apply(runs(2, passing, "web"))
		broken := true
		r.p.fault = func(int) fault {
			if broken {
				return fault{err: dataplane.ErrLimit}
			}
			return fault{}
		}
		r.serve()
		r.pass(5 * time.Minute)
		if n := len(r.p.history()); n < 8 || n > 20 {
			t.Errorf("tried %d times in 5 minutes", n)
		}
		if st := r.loop.Status(); !errors.Is(st.Error, dataplane.ErrLimit) || st.Generation != 0 {
			t.Errorf("status %+v, want the error", st)
		}
		if n := strings.Count(r.log.String(), "was not reconciled"); n != 1 {
			t.Errorf("logged %d times", n)
		}
		r.p.mu.Lock()
		broken = false
		r.p.mu.Unlock()
		r.pass(31 * time.Second)
		r.same()
		if !strings.Contains(r.log.String(), "reconciled again") {
			t.Error("the end of the trouble is not in the log")
		}
	})
}

func TestProviderThatWantsConfigurationEndsServe(t *testing.T) {
	inBubble(t, view.Alone, func(r *rig) {
		r.p.fault = func(int) fault { return fault{err: dataplane.ErrNotConfigured} }
		if err := r.loop.Serve(r.t.Context(), r.p, nil); !errors.Is(err, dataplane.ErrNotConfigured) {
			t.Errorf("Serve: %v, want ErrNotConfigured", err)
		}
	})
}

func TestLostProviderEndsACallAtOnce(t *testing.T) {
	inBubble(t, view.Alone, func(r *rig) {
		r.p.fault = func(int) fault { return fault{hang: true} }
		begun := time.Now()
		lose := r.serve()
		if err := lose(); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("Serve returned %v after the loss", took)
		}
	})
}

func TestSecondConnectionWaitsForTheFirst(t *testing.T) {
	inBubble(t, view.Alone, func(r *rig) {
		first := r.serve()
		second := r.serve()
		r.pass(3500 * time.Millisecond)
		if n := len(r.p.history()); n != 4 {
			t.Errorf("%d calls, want 4 of the first connection", n)
		}
		if err := errors.Join(first(), second()); err != nil {
			t.Error(err)
		}
	})
}

func TestScaleToZero(t *testing.T) {
	for _, c := range []struct {
		complete view.Completeness
		services bool // there were some in this session
		want     int  // of what a former session left
		flag     bool
	}{
		{view.Incomplete, false, 1, false},
		{view.TimedOut, false, 1, false},
		{view.Alone, false, 0, true},
		{view.Exchanged, false, 0, true},
		{view.Alone, true, 0, true},
		{view.TimedOut, true, 0, true},
	} {
		t.Run(fmt.Sprint(c.complete, c.services), func(t *testing.T) {
			inBubble(t, c.complete, func(r *rig) {
				leftover(t, r.p)
				if c.services {
					r.views.apply(runs(2, passing, "web"))
				}
				r.serve()
				r.pass(100 * time.Millisecond)
				if c.services {
					r.same()
					r.views.apply(runs(2, passing))
				}
				r.pass(2 * time.Second)
				if got := r.p.given().Len(); got != c.want {
					t.Errorf("%d services left, want %d\n%s", got, c.want, r.log)
				}
				flag := false
				for _, call := range r.p.history() {
					flag = flag || call.begin.GetAllowEmpty()
				}
				if flag != c.flag || r.loop.Status().Error != nil {
					t.Errorf("allow_empty %v, error %v, want %v, none", flag, r.loop.Status().Error, c.flag)
				}
			})
		})
	}
}

// leftover makes the provider hold a service of a former run of the agent.
func leftover(t *testing.T, p *provider) {
	t.Helper()
	v := view.Apply(view.Apply(view.New(self, 1), view.Completed{Completeness: view.Alone}), runs(9, passing, "old"))
	w := newViews(view.Alone)
	w.latest = v
	old := session()
	old.BootEpoch--
	push(t, p, w, old)
}

func TestCompletenessComesAsAGenerationOfItsOwn(t *testing.T) {
	inBubble(t, view.Incomplete, func(r *rig) {
		leftover(t, r.p)
		r.views.apply(runs(2, passing, "web"))
		r.serve()
		r.pass(100 * time.Millisecond)
		if got := r.p.given().Len(); got != 2 || r.loop.Status().Complete {
			t.Fatalf("%d services, want those of before and those of now", got)
		}
		r.views.apply(view.Completed{Completeness: view.Exchanged})
		r.pass(100 * time.Millisecond)
		r.same()
		if got := r.p.history(); got[len(got)-1].kind != "delta" || !r.loop.Status().Complete {
			t.Errorf("calls %v", r.kinds())
		}
	})
}

func TestResyncIsGivenAtTheNextTick(t *testing.T) {
	inBubble(t, view.Alone, func(r *rig) {
		r.views.apply(runs(2, passing, "web"))
		r.serve()
		r.pass(100 * time.Millisecond)
		for range 3 {
			r.p.events <- transfer.EncodeEvent(dataplane.Event{ResyncWanted: "lost track"})
		}
		r.pass(2 * time.Second)
		if got, want := r.kinds(), []string{"snapshot", "snapshot", "unchanged"}; !slices.Equal(got, want) {
			t.Errorf("calls %v, want %v", got, want)
		}
	})
}

// A service that the system refused is tried again though nothing changes, and less
// and less often.
func TestRefusedServicesAreTriedAgain(t *testing.T) {
	inBubble(t, view.Alone, func(r *rig) {
		snapshots := func() (n int) {
			for _, kind := range r.kinds() {
				if kind == "snapshot" {
					n++
				}
			}
			return n
		}
		began := time.Now()
		r.p.fault = func(int) fault {
			if time.Since(began) < 20*time.Second {
				return fault{statuses: []dataplane.ServiceStatus{{Service: dataplane.Key(key("web")), Status: dataplane.StatusRejected, Reason: dataplane.ReasonApplyFailed}}}
			}
			return fault{}
		}
		r.views.apply(runs(2, passing, "web"))
		r.serve()
		for _, step := range []struct {
			after time.Duration
			want  int
		}{{4 * time.Second, 1}, {3 * time.Second, 2}, {4 * time.Second, 2}, {6 * time.Second, 3}, {22 * time.Second, 4}, {time.Hour, 4}} {
			r.pass(step.after)
			if got := snapshots(); got != step.want {
				t.Errorf("after another %v: %d snapshots, want %d", step.after, got, step.want)
			}
		}
		if st := r.loop.Status(); len(st.Statuses) != 0 {
			t.Errorf("statuses %+v", st.Statuses)
		}
	})
}

func TestStatusesAndHealthAreKeptAndLoggedOnce(t *testing.T) {
	inBubble(t, view.Alone, func(r *rig) {
		bad := dataplane.ServiceStatus{Service: dataplane.Key(key("web")), Status: dataplane.StatusPartial, Reason: "no-affinity", Message: "lacks it"}
		r.p.fault = func(n int) fault {
			if n < 3 {
				return fault{statuses: []dataplane.ServiceStatus{bad}}
			}
			return fault{}
		}
		r.views.apply(runs(2, passing, "web", "db"))
		r.serve()
		r.pass(2500 * time.Millisecond)
		if got := r.loop.Status().Statuses; !reflect.DeepEqual(got, []dataplane.ServiceStatus{bad}) {
			t.Fatalf("statuses %+v", got)
		}
		if n := strings.Count(r.log.String(), "no-affinity"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, r.log)
		}
		r.p.events <- transfer.EncodeEvent(dataplane.Event{Health: &dataplane.Health{State: dataplane.HealthDegraded, Reasons: []string{"slow"}}})
		r.p.events <- transfer.EncodeEvent(dataplane.Event{Status: &dataplane.ServiceStatus{Service: dataplane.Key(key("db")), Status: dataplane.StatusRejected, Reason: "apply-failed"}})
		r.p.events <- transfer.EncodeEvent(dataplane.Event{Drift: &dataplane.Drift{What: "a rule was gone", Repaired: true}})
		r.pass(100 * time.Millisecond)
		if st := r.loop.Status(); len(st.Statuses) != 2 || st.Health.State != dataplane.HealthDegraded {
			t.Errorf("status %+v", st)
		}
		if !strings.Contains(r.log.String(), "a rule was gone") {
			t.Error("drift is not in the log")
		}
		r.p.events <- nil // the stream breaks and is opened anew
		r.pass(1500 * time.Millisecond)
		r.p.events <- transfer.EncodeEvent(dataplane.Event{Health: &dataplane.Health{State: dataplane.HealthReady}})
		r.views.apply(runs(3, passing, "web"))
		r.pass(1500 * time.Millisecond)
		if st := r.loop.Status(); len(st.Statuses) != 0 || st.Health.State != dataplane.HealthReady {
			t.Errorf("status %+v, want all programmed", st)
		}
	})
}

func TestManyStatusesDoNotFloodTheLog(t *testing.T) {
	inBubble(t, view.Alone, func(r *rig) {
		var all []dataplane.ServiceStatus
		for i := range 500 {
			all = append(all, dataplane.ServiceStatus{Service: dataplane.Key(key(fmt.Sprint("s", i))), Status: dataplane.StatusRejected, Reason: "limit"})
		}
		r.p.fault = func(int) fault { return fault{statuses: all} }
		r.serve()
		r.pass(3 * time.Second)
		if n := strings.Count(r.log.String(), "\n"); n > 30 {
			t.Errorf("%d lines in the log", n)
		}
		if n := len(r.loop.Status().Statuses); n != 500 {
			t.Errorf("%d statuses kept", n)
		}
	})
}

// An answer too may be about services that nobody asked for: some of them are
// what the provider fails to remove, and an answer has room for millions.
func TestStrangersInAnAnswerAreBounded(t *testing.T) {
	inBubble(t, view.Alone, func(r *rig) {
		r.views.apply(runs(2, passing, "web"))
		const most = 1000
		var all []dataplane.ServiceStatus
		for i := range 3 * most {
			all = append(all, dataplane.ServiceStatus{Service: dataplane.Key(key(fmt.Sprint("s", i))), Status: dataplane.StatusRejected})
		}
		all = append(all, dataplane.ServiceStatus{Service: dataplane.Key(key("web")), Status: dataplane.StatusRejected, Reason: "limit"})
		r.p.fault = func(int) fault { return fault{statuses: all} }
		r.serve()
		r.pass(3 * time.Second)
		kept := r.loop.Status().Statuses
		if len(kept) != most+1 {
			t.Errorf("%d statuses kept, want %d of services that the provider was never given, and that of web", len(kept), most)
		}
		if !slices.ContainsFunc(kept, func(s dataplane.ServiceStatus) bool { return s.Service.Name == "web" }) {
			t.Error("that of web is not among them")
		}
	})
}

// What a provider tells by itself may be without end, and about services that
// nobody asked for. The agent's memory and log are not.
func TestEventsWithoutEndAreBounded(t *testing.T) {
	inBubble(t, view.Alone, func(r *rig) {
		r.views.apply(runs(2, passing, "web"))
		r.serve()
		r.pass(2 * time.Second)
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for i := 0; ; i++ {
				e := dataplane.Event{Drift: &dataplane.Drift{What: "again"}}
				if i%2 == 0 {
					e = dataplane.Event{Status: &dataplane.ServiceStatus{Service: dataplane.Key(key(fmt.Sprint("s", i))), Status: dataplane.StatusRejected}}
				}
				select {
				case r.p.events <- transfer.EncodeEvent(e):
				case <-stop:
					return
				}
			}
		}()
		r.pass(20 * time.Second)
		close(stop)
		<-stopped
		if n := strings.Count(r.log.String(), "again"); n == 0 || n > 2100 {
			t.Errorf("%d lines in the log after 20 s", n)
		}
		if n := len(r.loop.Status().Statuses); n != 0 {
			t.Errorf("%d statuses of services that the provider was never given", n)
		}
		r.same()
	})
}

// A random life: views change, the provider misbehaves and restarts. Whenever
// it is left alone for a while, it has what the view says.
func TestProviderConverges(t *testing.T) {
	for seed := range uint64(scale.N(200)) {
		rng, wicked := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
		inBubble(t, view.Exchanged, func(r *rig) {
			evil := 0
			r.p.fault = func(int) fault {
				if evil == 0 || wicked.IntN(2) == 0 {
					return fault{}
				}
				return []fault{
					{err: dataplane.ErrFailed},
					{err: dataplane.ErrFailed, applied: true},
					{err: dataplane.ErrBaseMismatch},
					{err: dataplane.ErrInvalid},
					{hang: true},
					{hang: true, applied: true},
					{answer: 1 + wicked.Uint64N(20)},
					{forget: true},
					{delay: 2 * time.Second},
					{err: dataplane.ErrBusy, early: true},
				}[wicked.IntN(10)]
			}
			lose := r.serve()
			for range 6 {
				r.p.mu.Lock()
				evil = 1
				r.p.mu.Unlock()
				for range 10 {
					id := model.NodeID(2 + rng.IntN(4))
					switch rng.IntN(4) {
					case 0:
						r.views.apply(becomes(id, model.State(rng.IntN(4))))
					case 1:
						r.views.apply(runs(id, model.InstanceState(rng.IntN(4)), []string{"a", "b", "c"}[:rng.IntN(4)]...))
					case 2:
						r.views.apply(runs(id, passing, []string{"b", "d", "e"}[:rng.IntN(4)]...))
					case 3:
						if rng.IntN(4) == 0 {
							if err := lose(); err != nil {
								t.Fatalf("seed %d: %v", seed, err)
							}
							if rng.IntN(2) == 0 {
								r.p.restart()
							}
							lose = r.serve()
						}
					}
					r.pass(time.Duration(rng.IntN(1500)) * time.Millisecond)
				}
				r.p.mu.Lock()
				evil = 0
				r.p.mu.Unlock()
				r.pass(70 * time.Second)
				r.same()
			}
			var last uint64
			for _, c := range r.p.history() {
				if c.kind != "none" && c.gen < last {
					t.Fatalf("seed %d: generation %d after %d", seed, c.gen, last)
				}
				last = max(last, c.gen)
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

var _ pb.DataPlaneProviderClient = (*provider)(nil)
