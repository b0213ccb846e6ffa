package balance

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/test/scale"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return start.Add(d) }

var web = dataplane.Key{Namespace: "default", Name: "web"}

func endpoint(id uint64) dataplane.Endpoint {
	return dataplane.Endpoint{ID: id, Name: fmt.Sprintf("web-%d", id), Weight: 1, Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(id)}), 80)}
}

func service(b dataplane.Balance, endpoints ...dataplane.Endpoint) *dataplane.Service {
	return &dataplane.Service{Key: web, Balance: b, Endpoints: dataplane.NewEndpoints(endpoints...)}
}

func several(n int) []dataplane.Endpoint {
	var list []dataplane.Endpoint
	for id := range n {
		list = append(list, endpoint(uint64(id+1)))
	}
	return list
}

// world is a registry with one service.
type world struct {
	*testing.T
	registry *Registry
	pool     *Pool
	rnd      *rand.PCG
}

func newWorld(t *testing.T, svc *dataplane.Service) *world {
	w := &world{T: t, registry: NewRegistry(Config{}, start), rnd: rand.NewPCG(1, 2)}
	w.pool = w.registry.Update(svc, start, w.rnd)
	return w
}

func (w *world) update(now time.Time, svc *dataplane.Service) {
	w.Helper()
	if p := w.registry.Update(svc, now, w.rnd); p != w.pool {
		w.Fatal("the pool of a service changed")
	}
}

func (w *world) pick(now time.Time, c Choice) Lease {
	w.Helper()
	l, ok := w.pool.Pick(now, w.rnd, c)
	if !ok {
		w.Fatal("nothing to pick")
	}
	return l
}

// fail ejects an endpoint by a request to it.
func (w *world) fail(now time.Time, id uint64) {
	w.Helper()
	for range 10000 {
		l := w.pick(now, Choice{NoTrial: true})
		if l.Endpoint.ID() == id {
			l.Failed(now, w.rnd)
			l.Release()
			return
		}
		l.Release()
	}
	w.Fatalf("endpoint %d is never chosen", id)
}

// counts sends n requests, one after the other.
func (w *world) counts(now time.Time, n int, choice func(i int) Choice) map[uint64]int {
	w.Helper()
	count := make(map[uint64]int)
	for i := range n {
		c := Choice{NoTrial: true}
		if choice != nil {
			c = choice(i)
		}
		l := w.pick(now, c)
		count[l.Endpoint.ID()]++
		l.Succeeded(now, time.Millisecond)
		l.Release()
	}
	return count
}

// fair checks counts against shares by chi-square. The bounds are those of
// p = 0.0001 for up to 9 degrees of freedom.
func fair(t *testing.T, what string, count map[uint64]int, share map[uint64]float64) {
	t.Helper()
	bounds := []float64{0, 15.1, 18.4, 21.1, 23.5, 25.7, 27.9, 29.9, 31.8, 33.7}
	var n, total, chi float64
	for _, c := range count {
		n += float64(c)
	}
	for _, s := range share {
		total += s
	}
	for id, c := range count {
		if share[id] == 0 {
			t.Errorf("%s: endpoint %d got %d, and should get none", what, id, c)
		}
	}
	for id, s := range share {
		want := n * s / total
		chi += (float64(count[id]) - want) * (float64(count[id]) - want) / want
	}
	if chi > bounds[len(share)-1] {
		t.Errorf("%s: chi-square %.1f: %v of shares %v", what, chi, count, share)
	}
}

func TestSharesWithSomeOut(t *testing.T) {
	policies := []dataplane.Balance{dataplane.BalanceDefault, dataplane.BalanceLeastLoad, dataplane.BalanceRandom, dataplane.BalanceRoundRobin, dataplane.BalanceHash}
	for _, policy := range policies {
		for _, weighted := range []bool{false, true} {
			for out := range 9 { // caddy #7873: with k unhealthy the choice was skewed
				list := several(10)
				share := map[uint64]float64{}
				for i := range list {
					if weighted {
						list[i].Weight = uint16(1 + i%3)
					}
					share[list[i].ID] = float64(list[i].Weight)
				}
				w := newWorld(t, service(policy, list...))
				r := rand.New(w.rnd)
				for _, i := range r.Perm(10)[:out] {
					id := list[i].ID
					if policy == dataplane.BalanceHash {
						w.pick(start, Choice{Tried: slices.DeleteFunc(w.pool.Endpoints(), func(e *Endpoint) bool { return e.ID() == id })}).Failed(start, w.rnd)
						w.endpoint(id).inFlight.Add(-1)
					} else {
						w.fail(start, id)
					}
					delete(share, id)
				}
				count := w.counts(start, 5000, func(int) Choice { return Choice{NoTrial: true, Hash: r.Uint64()} })
				fair(t, fmt.Sprintf("%v, weights %v, %d out", policy, weighted, out), count, share)
			}
		}
	}
}

func (w *world) endpoint(id uint64) *Endpoint {
	w.Helper()
	for _, e := range w.pool.Endpoints() {
		if e.ID() == id {
			return e
		}
	}
	w.Fatalf("no endpoint %d", id)
	return nil
}

func TestTriedAreNotChosenAgain(t *testing.T) {
	for _, policy := range []dataplane.Balance{dataplane.BalanceDefault, dataplane.BalanceRandom, dataplane.BalanceRoundRobin, dataplane.BalanceHash} {
		w := newWorld(t, service(policy, several(5)...))
		w.pool.endpoints[identity{2, endpoint(2).Addr}].nextTrial.Store(math.MaxInt64) // ejected for ever
		w.update(start, service(policy, several(5)...))
		for range 200 {
			var tried []*Endpoint
			for range 5 {
				l := w.pick(start, Choice{Tried: tried, Hash: w.rnd.Uint64()})
				l.Release()
				if slices.Contains(tried, l.Endpoint) {
					t.Fatalf("%v: %s was chosen again", policy, l.Endpoint.Name())
				}
				tried = append(tried, l.Endpoint)
			}
			if tried[4].ID() != 2 {
				t.Fatalf("%v: the ejected endpoint was not the last resort", policy)
			}
			if _, ok := w.pool.Pick(start, w.rnd, Choice{Tried: tried}); ok {
				t.Fatalf("%v: all were tried", policy)
			}
		}
	}
	// Leaving one out gives the others its share in proportion.
	list := several(3)
	list[2].Weight = 3
	w := newWorld(t, service(dataplane.BalanceRandom, list...))
	count := w.counts(start, 4000, func(int) Choice { return Choice{Tried: []*Endpoint{w.endpoint(1)}} })
	fair(t, "tried", count, map[uint64]float64{2: 1, 3: 3})
	list = several(40)
	list[0].Weight, list[39].Weight = 2, 1
	w = newWorld(t, service(dataplane.BalanceRandom, list...))
	all := w.pool.Endpoints()
	count = w.counts(start, 4000, func(int) Choice { return Choice{Tried: all[1:39]} })
	fair(t, "most were tried", count, map[uint64]float64{1: 2, 40: 1})
}

func TestNothingToPick(t *testing.T) {
	drains := endpoint(1)
	drains.State = dataplane.Draining
	idle := endpoint(2)
	idle.Weight = 0
	w := newWorld(t, service(0, drains, idle))
	if _, ok := w.pool.Pick(start, w.rnd, Choice{}); ok || w.pool.Len() != 0 || len(w.pool.Endpoints()) != 2 {
		t.Error("an endpoint that drains, or has no weight, was chosen")
	}
}

func TestSuspectsAreLeftOutWhileHalfAreBetter(t *testing.T) {
	list := several(4)
	for suspects, want := range []int{4, 3, 2, 4, 4} {
		for i := range list {
			list[i].State = dataplane.Ready
			if i < suspects {
				list[i].State = dataplane.Suspect
			}
		}
		w := newWorld(t, service(dataplane.BalanceRandom, list...))
		if got := len(w.counts(start, 300, nil)); got != want {
			t.Errorf("%d suspects of 4: %d are used, want %d", suspects, got, want)
		}
	}
}

// traefik #13913: the counts of requests in flight went back to 0 with each
// new configuration.
func TestWhatIsKnownSurvivesSnapshots(t *testing.T) {
	list := several(3)
	w := newWorld(t, service(0, list...))
	held := w.pick(start, Choice{})
	held.Succeeded(start, 80*time.Millisecond)
	for i := range 1000 {
		list[i%3].Weight = uint16(1 + i%2)
		w.update(start, service(0, list...))
		if e := w.endpoint(held.Endpoint.ID()); e != held.Endpoint || e.InFlight() != 1 {
			t.Fatalf("after %d snapshots: %p with %d in flight, was %p", i, e, e.InFlight(), held.Endpoint)
		}
	}
	// Also through a snapshot without it.
	w.update(start, service(0))
	w.update(start, service(0, list...))
	if w.endpoint(held.Endpoint.ID()) != held.Endpoint {
		t.Error("an endpoint with a request in flight was forgotten")
	}
	held.Release()
	w.update(start, service(0))
	if len(w.pool.endpoints) != 0 {
		t.Errorf("%d endpoints are kept for nothing", len(w.pool.endpoints))
	}
	// Another address is another endpoint.
	w.update(start, service(0, list[0]))
	before := w.endpoint(1)
	list[0].Addr = netip.MustParseAddrPort("10.9.9.9:80")
	w.update(start, service(0, list[0]))
	if after := w.endpoint(1); after == before || after.Addr() != list[0].Addr {
		t.Errorf("%v took over what is known of %v", after.Addr(), before.Addr())
	}
	w.registry.Remove(web, start)
	if w.registry.Pool(web) != nil || w.pool.Len() != 0 {
		t.Error("a removed service is still there")
	}
}

// traefik #8787: with a reload every few requests, the first got them all.
func TestTurnsGoOnThroughSnapshots(t *testing.T) {
	for _, policy := range []dataplane.Balance{dataplane.BalanceRoundRobin, dataplane.BalanceDefault, dataplane.BalanceRandom} {
		list := several(5)
		w := newWorld(t, service(policy, list...))
		count := map[uint64]int{}
		for i := range 3000 {
			if i%2 == 0 {
				list[4].Zone = fmt.Sprint(i)
				w.update(start, service(policy, list...))
			}
			l := w.pick(start, Choice{})
			count[l.Endpoint.ID()]++
			l.Release()
		}
		fair(t, policy.String(), count, map[uint64]float64{1: 1, 2: 1, 3: 1, 4: 1, 5: 1})
	}
	// Where the first turn goes is random.
	first := map[uint64]int{}
	for seed := range uint64(2000) {
		rnd := rand.NewPCG(seed, 0)
		p := NewRegistry(Config{}, start).Update(service(dataplane.BalanceRoundRobin, several(3)...), start, rnd)
		l, _ := p.Pick(start, rnd, Choice{})
		first[l.Endpoint.ID()]++
	}
	fair(t, "first turns", first, map[uint64]float64{1: 1, 2: 1, 3: 1})
}

func TestRoundRobinTakesTurns(t *testing.T) {
	w := newWorld(t, service(dataplane.BalanceRoundRobin, several(3)...))
	for range 10 {
		if count := w.counts(start, 3, nil); len(count) != 3 {
			t.Fatalf("three turns in a row: %v", count)
		}
	}
}

func TestTheBusierGetsLess(t *testing.T) {
	w := newWorld(t, service(0, several(2)...))
	w.endpoint(1).inFlight.Store(5)
	if count := w.counts(start, 100, nil); count[2] != 100 {
		t.Errorf("2 has less in flight: %v", count)
	}
	list := several(2)
	list[0].Weight = 10
	w = newWorld(t, service(0, list...))
	w.endpoint(1).inFlight.Store(5)
	w.endpoint(2).inFlight.Store(1)
	if count := w.counts(start, 100, nil); count[1] != 100 {
		t.Errorf("1 has less in flight for its weight: %v", count)
	}
}

func TestTheSlowerGetsLess(t *testing.T) {
	w := newWorld(t, service(0, several(2)...))
	slow := Lease{Endpoint: w.endpoint(1), pool: w.pool}
	slow.Succeeded(start, 50*time.Millisecond)
	if l := slow.Endpoint.Latency(start); l > 2*time.Millisecond {
		t.Errorf("one slow answer made it %v", l)
	}
	slow.Succeeded(start, 60*time.Millisecond)
	if l := slow.Endpoint.Latency(start); l != 50*time.Millisecond {
		t.Errorf("two slow answers made it %v, want the quicker one", l)
	}
	if count := w.counts(start, 100, nil); count[2] != 100 {
		t.Errorf("2 is quicker: %v", count)
	}
	// Ten quick ones on top of it are as slow as one there.
	w.endpoint(2).inFlight.Store(40)
	if count := w.counts(start, 100, nil); count[1] == 0 {
		t.Errorf("2 is quicker, but has 40 in flight: %v", count)
	}
	w.endpoint(2).inFlight.Store(0)
	if count := w.counts(at(30*time.Second), 1000, nil); count[1] < 300 {
		t.Errorf("what was slow long ago is tried again: %v", count)
	}
	// A newcomer is taken for a typical one.
	w.endpoint(2).latency.begin(1, 80e6)
	w.update(start, service(0, several(3)...))
	if l := w.endpoint(3).Latency(start); l < 40*time.Millisecond || l > 90*time.Millisecond {
		t.Errorf("a newcomer begins with %v", l)
	}
}

func TestEjectionEndsByOneTrial(t *testing.T) {
	w := newWorld(t, service(0, several(3)...))
	w.fail(start, 2)
	if !w.endpoint(2).Ejected() {
		t.Fatal("not ejected")
	}
	want := time.Second // doubled by each failed trial
	now := start
	for round := range 8 {
		if count := w.counts(now.Add(want*9/10), 300, func(int) Choice { return Choice{} }); count[2] != 0 {
			t.Fatalf("round %d: chosen before its trial: %v", round, count)
		}
		now = now.Add(want + want/10 + time.Millisecond)
		if count := w.counts(now, 100, nil); count[2] != 0 {
			t.Fatalf("round %d: a request that cannot be repeated was the trial", round)
		}
		trial := w.pick(now, Choice{})
		if trial.Endpoint.ID() != 2 || !trial.Trial() {
			t.Fatalf("round %d: no trial when it was due", round)
		}
		if count := w.counts(now, 300, func(int) Choice { return Choice{} }); count[2] != 0 {
			t.Fatalf("round %d: a second trial beside the first: %v", round, count)
		}
		trial.Failed(now, w.rnd)
		trial.Release()
		want = min(2*want, 30*time.Second)
	}
	now = now.Add(time.Minute)
	given := w.pick(now, Choice{})
	given.Release() // the client gave up: nothing is known, and another trial comes later
	if !w.endpoint(2).Ejected() {
		t.Fatal("a trial that said nothing ended the ejection")
	}
	now = now.Add(time.Minute)
	trial := w.pick(now, Choice{})
	trial.Succeeded(now, time.Millisecond)
	trial.Release()
	if w.endpoint(2).Ejected() {
		t.Fatal("a trial that went well did not end the ejection")
	}
	fair(t, "after the trial", w.counts(now, 3000, nil), map[uint64]float64{1: 1, 2: 1, 3: 1})
}

// Of a service that gets nothing but what cannot be repeated.
func TestATrialIsNotPutOffForEver(t *testing.T) {
	w := newWorld(t, service(0, several(3)...))
	w.fail(start, 2)
	if count := w.counts(at(30*time.Second), 300, nil); count[2] != 0 {
		t.Errorf("the trial came too early: %v", count)
	}
	l := w.pick(at(32*time.Second), Choice{NoTrial: true})
	if !l.Trial() {
		t.Error("no trial")
	}
	l.Failed(at(32*time.Second), w.rnd)
	l.Release()
	if count := w.counts(at(60*time.Second), 300, nil); count[2] != 0 {
		t.Errorf("the next trial came too early: %v", count)
	}
}

// Where all have failed they are chosen nevertheless, and as often as requests
// come. That must not keep them out for long once they are back.
func TestOnlyATrialThatWasDueLengthensTheEjection(t *testing.T) {
	w := newWorld(t, service(0, several(2)...))
	w.fail(start, 1)
	w.fail(start, 2)
	for i := range 100 {
		now := at(time.Duration(i) * 5 * time.Millisecond)
		first := w.pick(now, Choice{})
		first.Failed(now, w.rnd)
		again := w.pick(now, Choice{Tried: []*Endpoint{first.Endpoint}})
		again.Failed(now, w.rnd)
		first.Release()
		again.Release()
	}
	now := at(1101 * time.Millisecond)
	tried := map[uint64]bool{}
	for range 2 {
		l := w.pick(now, Choice{})
		tried[l.Endpoint.ID()] = true
		l.Succeeded(now, time.Millisecond)
		l.Release()
	}
	if len(tried) != 2 || w.endpoint(1).Ejected() || w.endpoint(2).Ejected() {
		t.Errorf("a back-off after the failure only %v were tried: requests in between made the ejection longer", tried)
	}
}

func TestManyFailuresAtOnceAreOne(t *testing.T) {
	w := newWorld(t, service(dataplane.BalanceRoundRobin, several(2)...))
	var leases []Lease
	for range 20 {
		leases = append(leases, w.pick(start, Choice{}))
	}
	for _, l := range leases {
		if l.Endpoint.ID() == 1 {
			l.Failed(start, w.rnd)
			l.Failed(start, w.rnd)
		}
	}
	if l := w.pick(at(1101*time.Millisecond), Choice{}); l.Endpoint.ID() != 1 || !l.Trial() {
		t.Error("ten failures of one moment counted as ten trials")
	}
	// A late answer of a request that went there before is no trial.
	w.endpoint(1).nextTrial.Store(math.MaxInt64)
	leases[0].Succeeded(start, time.Millisecond)
	leases[1].Succeeded(start, time.Millisecond)
	if !w.endpoint(1).Ejected() {
		t.Error("a late answer ended the ejection")
	}
}

func TestANewerVersionEndsTheEjection(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(w *world, e *dataplane.Endpoint)
		ends   bool
	}{
		"nothing":  {func(*world, *dataplane.Endpoint) {}, false},
		"suspect":  {func(_ *world, e *dataplane.Endpoint) { e.State = dataplane.Suspect }, false},
		"weight":   {func(_ *world, e *dataplane.Endpoint) { e.Weight = 2 }, true},
		"returned": {func(w *world, _ *dataplane.Endpoint) { w.update(start, service(0, several(1)...)) }, true},
	} {
		list := several(3)
		w := newWorld(t, service(0, list...))
		w.fail(start, 2)
		w.endpoint(2).inFlight.Add(1) // so that it is not forgotten
		tt.change(w, &list[1])
		w.update(start, service(0, list...))
		if w.endpoint(2).Ejected() == tt.ends {
			t.Errorf("%s: ejected is %v", name, w.endpoint(2).Ejected())
		}
	}
	// Suspect and back is news.
	list := several(3)
	w := newWorld(t, service(0, list...))
	w.fail(start, 2)
	list[1].State = dataplane.Suspect
	w.update(start, service(0, list...))
	list[1].State = dataplane.Ready
	w.update(start, service(0, list...))
	if w.endpoint(2).Ejected() {
		t.Error("an endpoint that is no longer suspect is still ejected")
	}
}

func TestAPoolIsNeverEmptiedByEjection(t *testing.T) {
	w := newWorld(t, service(0, several(3)...))
	for id := range uint64(3) {
		w.fail(start, id+1)
	}
	if count := w.counts(start, 1, nil); len(count) != 1 {
		t.Fatal("nobody left")
	}
	// The one that answered is in again, alone.
	if count := w.counts(start, 100, nil); len(count) != 1 {
		t.Errorf("%v", count)
	}
}

func TestHashIsStable(t *testing.T) {
	const keys = 2000
	list := several(5)
	to := func(w *world) (to [keys]uint64) {
		for i := range keys {
			l := w.pick(start, Choice{Hash: mix(uint64(i)), NoTrial: true})
			to[i] = l.Endpoint.ID()
			l.Release()
		}
		return to
	}
	w := newWorld(t, service(dataplane.BalanceHash, list...))
	if !w.pool.Hashed() {
		t.Error("a hash policy that does not say so")
	}
	all, other := to(w), to(newWorld(t, service(dataplane.BalanceHash, list...)))
	if all != other {
		t.Error("two proxies disagree")
	}
	without := to(newWorld(t, service(dataplane.BalanceHash, slices.Delete(slices.Clone(list), 2, 3)...)))
	list[2].State = dataplane.Suspect // filtered instead (skipper #4138)
	filtered := to(newWorld(t, service(dataplane.BalanceHash, list...)))
	for i := range keys {
		if all[i] != 3 && all[i] != without[i] {
			t.Fatalf("key %d moved from %d to %d", i, all[i], without[i])
		}
	}
	if filtered != without {
		t.Error("an endpoint left out moves other keys than one that is gone")
	}
	byClient := service(0, list...)
	byClient.Affinity.ByClient = true
	w = newWorld(t, byClient)
	c := Choice{Hash: HashAddr(netip.MustParseAddr("192.0.2.7"))}
	if count := w.counts(start, 100, func(int) Choice { return c }); len(count) != 1 {
		t.Errorf("a client is at %v", count)
	}
	if HashAddr(netip.MustParseAddr("192.0.2.7")) != HashAddr(netip.MustParseAddr("::ffff:192.0.2.7")) {
		t.Error("one address, two hashes")
	}
}

func TestHashLoadIsBounded(t *testing.T) {
	w := newWorld(t, service(dataplane.BalanceHash, several(4)...))
	c := Choice{Hash: 42}
	for i := range 400 { // one client, never done
		w.pick(start, c)
		for _, e := range w.pool.Endpoints() {
			if bound := math.Ceil(1.25 * float64(i+1) / 4); float64(e.InFlight()) > bound {
				t.Fatalf("of %d in flight %d are at one, more than %v", i+1, e.InFlight(), bound)
			}
		}
	}
}

func TestBudget(t *testing.T) {
	b := NewRegistry(Config{RetryRatio: 0.2, RetryFloor: 5}, start).Update(service(dataplane.BalanceDefault), start, rand.NewPCG(1, 2)).Budget()
	retries := func(now time.Time) (n int) {
		for b.Retry(now) {
			n++
		}
		return n
	}
	if n := retries(start); n != 20 {
		t.Errorf("%d retries at the start, want 20", n)
	}
	for range 50 {
		b.Request()
	}
	if n := retries(start); n != 10 {
		t.Errorf("%d retries for 50 requests, want 10", n)
	}
	if n := retries(at(2 * time.Second)); n != 10 {
		t.Errorf("%d retries in 2 s, want 10", n)
	}
	if n := retries(at(time.Second)); n != 0 {
		t.Errorf("%d retries by going back in time", n)
	}
	for range 100000 {
		b.Request()
	}
	if n := retries(at(2 * time.Second)); n != 100 {
		t.Errorf("%d retries saved up, want 100", n)
	}
	// A storm: every try fails.
	tries, requests := 0, 20000
	for i := range requests {
		b.Request()
		tries++
		for range 2 {
			if b.Retry(at(2*time.Second + time.Duration(i)*200*time.Microsecond)) {
				tries++
			}
		}
	}
	if got := float64(tries) / float64(requests); got > 1.21 || got < 1.19 {
		t.Errorf("%.3f tries for a request, want 1.2", got)
	}
}

func TestTheHotPathDoesNotAllocate(t *testing.T) {
	for _, policy := range []dataplane.Balance{dataplane.BalanceDefault, dataplane.BalanceRandom, dataplane.BalanceRoundRobin, dataplane.BalanceHash} {
		w := newWorld(t, service(policy, several(5)...))
		tried := []*Endpoint{w.endpoint(3)}
		if n := testing.AllocsPerRun(100, func() {
			for _, c := range []Choice{{Hash: 1}, {Hash: 2, Tried: tried}} {
				l, _ := w.pool.Pick(start, w.rnd, c)
				l.Succeeded(start, time.Millisecond)
				l.Release()
			}
			w.pool.Budget().Request()
			w.pool.Budget().Retry(start)
		}); n != 0 {
			t.Errorf("%v: %v allocations", policy, n)
		}
	}
}

func TestManyAtOnce(t *testing.T) {
	list := several(6)
	w := newWorld(t, service(0, list...))
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			rnd := rand.NewPCG(uint64(g), 3)
			r := rand.New(rnd)
			for i := range scale.N(20000) {
				now := at(time.Duration(i) * time.Millisecond)
				l, ok := w.pool.Pick(now, rnd, Choice{Hash: rnd.Uint64()})
				if !ok {
					t.Error("nothing to pick")
					return
				}
				w.pool.Budget().Request()
				switch r.IntN(10) {
				case 0:
					l.Failed(now, rnd)
					w.pool.Budget().Retry(now)
				case 1:
				default:
					l.Succeeded(now, time.Duration(r.IntN(1e7)))
				}
				l.Release()
			}
		})
	}
	policies := []dataplane.Balance{dataplane.BalanceDefault, dataplane.BalanceRoundRobin, dataplane.BalanceHash, dataplane.BalanceRandom}
	for i := range scale.N(5000) {
		list[i%6].Zone = fmt.Sprint(i)
		w.update(at(time.Duration(i)*time.Millisecond), service(policies[i%4], list[:1+i%6]...))
	}
	wg.Wait()
	w.update(start, service(0, list...))
	for _, e := range w.pool.Endpoints() {
		if e.InFlight() != 0 {
			t.Errorf("%s has %d in flight, and nobody holds a lease", e.Name(), e.InFlight())
		}
	}
	if len(w.pool.endpoints) != 6 {
		t.Errorf("%d endpoints are kept", len(w.pool.endpoints))
	}
}

func BenchmarkPick(b *testing.B) {
	for _, policy := range []dataplane.Balance{dataplane.BalanceLeastLoad, dataplane.BalanceRoundRobin, dataplane.BalanceRandom, dataplane.BalanceHash} {
		b.Run(policy.String(), func(b *testing.B) {
			rnd := rand.NewPCG(1, 2)
			p := NewRegistry(Config{}, start).Update(service(policy, several(10)...), start, rnd)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i++
				now := at(time.Duration(i) * time.Microsecond)
				l, _ := p.Pick(now, rnd, Choice{Hash: uint64(i)})
				l.Succeeded(now, time.Millisecond)
				l.Release()
			}
		})
	}
}

// A reload must not bring back an endpoint that fails, nor forget who is busy.
func TestConfigureKeepsWhatIsKnown(t *testing.T) {
	w := newWorld(t, service(dataplane.BalanceRandom, several(3)...))
	busy := w.pick(start, Choice{NoTrial: true})
	defer busy.Release()
	w.fail(start, 2)
	if w.pool.Budget().Retry(start) {
		t.Error("a retry without a budget")
	}
	w.registry.Configure(Config{EjectFor: time.Hour, EjectAtMost: time.Hour, RetryRatio: 1})
	w.update(at(time.Millisecond), service(dataplane.BalanceRandom, several(3)...))
	if !w.endpoint(2).Ejected() || busy.Endpoint.InFlight() != 1 {
		t.Errorf("ejected %v, in flight %d", w.endpoint(2).Ejected(), busy.Endpoint.InFlight())
	}
	w.pool.Budget().Request()
	if !w.pool.Budget().Retry(start) {
		t.Error("the new budget is not in force")
	}
	w.fail(start, 3)
	if l := w.pick(at(5*time.Second), Choice{}); l.Endpoint.ID() != 2 {
		t.Errorf("the trial is at %d, want 2, by the old time", l.Endpoint.ID())
	}
	if l := w.pick(at(59*time.Minute), Choice{}); l.Endpoint.ID() != 1 {
		t.Errorf("the trial is at %d before the new time is over", l.Endpoint.ID())
	}
}
