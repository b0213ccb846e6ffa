package l4

import (
	"fmt"
	"math"
	"time"

	"github.com/fairlead/fairlead/dataplane"
)

func balanceChecks() []Check {
	var all []Check
	for _, n := range []int{2, 3, 10, 100, 1000} {
		all = append(all, Check{
			ID:     fmt.Sprintf("balance.%d", n),
			Demand: fmt.Sprintf("New connections are shared evenly by %d endpoints of the same weight: chi-square with p > 0.001 in one of three tries.", n),
			Remedy: "choose each endpoint with the probability 1/n; beware of rounded probabilities and of a modulus of few bits",
			run:    func(g *rig) error { return balanced(g, n) },
		})
	}
	return append(all, Check{
		ID: "balance.weights", Demand: "Endpoints of weight 1, 2 and 7 get a tenth, two tenths and seven tenths of the new connections, one of weight 0 none: chi-square with p > 0.001 in one of three tries.",
		Remedy: "choose by weight", needs: []Feature{Weights}, run: weighted,
	}, Check{
		ID: "balance.affinity", Demand: "A client with affinity stays with its endpoint while others come and go, and is led elsewhere, and stays there, when its own takes no new connections.",
		Remedy: "keep who was led where; drop the memory of an endpoint that drains or is gone", needs: []Feature{Affinity}, run: affinity,
	}, Check{
		ID: "balance.affinity-ends", Demand: "Affinity ends when the client did not come back within its TTL.",
		Remedy: "look at the age of what is remembered, not only at its being there", needs: []Feature{Affinity}, run: affinityEnds,
	})
}

// tries is how often a sample may look unlikely. A plane that is right fails once
// in a billion runs, and one that is not fails each try.
const tries = 3

// shared makes total connects, and wants these shares, by chi-square.
func (g *rig) shared(svc *dataplane.Service, total int, shares map[string]float64) error {
	var err error
	for range tries {
		var got map[string]int
		if got, err = g.count(g.client(), "tcp", svc.Frontends[0].Addr, total); err != nil {
			return err
		}
		chi, freedom := 0.0, float64(len(shares)-1)
		for name, share := range shares {
			want := share * float64(total)
			chi += (float64(got[name]) - want) * (float64(got[name]) - want) / want
			delete(got, name)
		}
		if len(got) > 0 {
			return fmt.Errorf("of %d connects some went to %v, which takes none", total, got)
		}
		bound := quantile(freedom)
		if chi <= bound {
			g.note("chi-square of %d connects: %.1f, bound %.1f", total, chi, bound)
			return nil
		}
		err = fmt.Errorf("chi-square of %d connects to %d endpoints is %.1f, at most %.1f", total, len(shares), chi, bound)
	}
	return err
}

// quantile is that of chi-square at 0.999, by the approximation of Wilson and
// Hilferty, which is above the true one by at most 0.4, with one degree of freedom.
func quantile(freedom float64) float64 {
	const z = 3.0902
	c := 2 / (9 * freedom)
	x := 1 - c + z*math.Sqrt(c)
	return freedom * x * x * x
}

func balanced(g *rig, n int) error {
	if n > 100 && g.options.Scale < 1 {
		return skipf("at scale 1 only, this is %g", g.options.Scale)
	}
	svc, list, err := g.serve(n, "tcp")
	if err != nil {
		return err
	}
	shares := make(map[string]float64, n)
	for _, in := range list {
		shares[in.name] = 1 / float64(n)
	}
	return g.shared(svc, g.scaled(10_000, 15*n), shares)
}

func weighted(g *rig) error {
	list, err := g.instances(4, "tcp", false)
	if err != nil {
		return err
	}
	weights := []uint16{1, 2, 7, 0}
	svc := edited(g.service(g.vip(false, 80), "tcp", list...), func(e *dataplane.Endpoint) { e.Weight = weights[e.ID-1] })
	if err := g.apply(svc); err != nil {
		return err
	}
	return g.shared(svc, g.scaled(10_000, 200), map[string]float64{"i0": 0.1, "i1": 0.2, "i2": 0.7})
}

// alone makes connects that all have to reach the same instance, and returns which.
func (g *rig) alone(svc *dataplane.Service) (string, error) {
	got, err := g.count(g.client(), "tcp", svc.Frontends[0].Addr, 20)
	if err != nil {
		return "", err
	}
	if len(got) != 1 {
		return "", fmt.Errorf("a client with affinity was led to %v", got)
	}
	for name := range got {
		return name, nil
	}
	return "", nil
}

func affinity(g *rig) error {
	list, err := g.instances(8, "tcp", false)
	if err != nil {
		return err
	}
	svc := g.service(g.vip(false, 80), "tcp", list...)
	svc.Affinity = dataplane.Affinity{ByClient: true, TTL: time.Hour}
	if err := g.apply(svc); err != nil {
		return err
	}
	first, err := g.alone(svc)
	if err != nil {
		return err
	}
	svc = edited(svc, func(e *dataplane.Endpoint) { // another set, in which the endpoint stands elsewhere
		if e.Name != first && e.ID%2 == 0 {
			e.State = dataplane.Draining
		}
	})
	if err := g.apply(svc); err != nil {
		return err
	}
	if now, err := g.alone(svc); err != nil || now != first {
		return fmt.Errorf("led to %s, then, when others went, to %s, %w", first, now, orNone(err))
	}
	svc = edited(svc, func(e *dataplane.Endpoint) {
		if e.Name == first {
			e.State = dataplane.Draining
		}
	})
	if err := g.apply(svc); err != nil {
		return err
	}
	second, err := g.alone(svc)
	if err != nil || second == first {
		return fmt.Errorf("led to %s, and when that drains to %s, %w", first, second, orNone(err))
	}
	var left []dataplane.Endpoint
	for e := range svc.Endpoints.All() {
		if e.Name != second {
			left = append(left, e)
		}
	}
	svc = withEndpoints(svc, left...)
	if err := g.apply(svc); err != nil {
		return err
	}
	if third, err := g.alone(svc); err != nil || third == second || third == first {
		return fmt.Errorf("led to %s, and when that is gone to %s, %w", second, third, orNone(err))
	}
	return nil
}

func affinityEnds(g *rig) error {
	list, err := g.instances(8, "tcp", false)
	if err != nil {
		return err
	}
	svc := g.service(g.vip(false, 80), "tcp", list...)
	svc.Affinity = dataplane.Affinity{ByClient: true, TTL: time.Hour}
	if err := g.apply(svc); err != nil {
		return err
	}
	first, err := g.alone(svc)
	if err != nil {
		return err
	}
	short := *svc // from now on, as a busy machine may need that for the connects above
	short.Affinity.TTL = time.Second
	svc = &short
	if err := g.apply(svc); err != nil {
		return err
	}
	for range 10 { // one of eight times the choice is the same again
		g.pause(svc.Affinity.TTL + 300*time.Millisecond)
		name, err := g.client().ask("tcp", svc.Frontends[0].Addr)
		if err != nil {
			return err
		}
		if name != first {
			return nil
		}
	}
	return fmt.Errorf("ten times a client came back after its TTL of %v, and was led to %s each time", svc.Affinity.TTL, first)
}
