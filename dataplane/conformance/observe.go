package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

// errBlind is the answer of a provider that does not show what is programmed.
var errBlind = fmt.Errorf("%w: not observable: the provider counts neither %s nor %s", errSkip, dataplane.GaugeServices, dataplane.GaugeEndpoints)

// programmed is the number of endpoints of each service in the system.
type programmed map[dataplane.Key]int

// expect makes the programmed services n → endpoints.
func expect(counts map[int]int) programmed {
	p := make(programmed, len(counts))
	for n, endpoints := range counts {
		p[key(n)] = endpoints
	}
	return p
}

func (p programmed) String() string {
	keys := make([]dataplane.Key, 0, len(p))
	for k := range p {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, dataplane.Key.Compare)
	var b strings.Builder
	fmt.Fprintf(&b, "%d services", len(keys))
	for i, k := range keys {
		if i == 8 {
			b.WriteString(" …")
			break
		}
		fmt.Fprintf(&b, ", %s with %d", k.Name, p[k])
	}
	return b.String()
}

// observe reads what is programmed; errBlind if nobody shows it.
func (k *kit) observe(ctx context.Context) (programmed, error) {
	if k.options.Observe != nil {
		p, err := k.options.Observe(ctx)
		if err != nil {
			return nil, failf("Options.Observe: %w", err)
		}
		return p, nil
	}
	counters, err := k.counters(ctx)
	if err != nil {
		return nil, err
	}
	p, total := make(programmed), -1
	for _, c := range counters {
		switch c.GetName() {
		case dataplane.GaugeServices:
			total = int(c.GetValue())
		case dataplane.GaugeEndpoints:
			p[transfer.DecodeKey(c.GetService())] = int(c.GetValue())
		}
	}
	switch {
	case total < 0:
		return nil, errBlind
	case total != len(p):
		return nil, fmt.Errorf("%s is %d, but %d services have %s", dataplane.GaugeServices, total, len(p), dataplane.GaugeEndpoints)
	}
	return p, nil
}

// counters reads all counters; errBlind if the provider has none.
func (k *kit) counters(ctx context.Context) ([]*pb.Counter, error) {
	ctx, cancel := context.WithTimeout(ctx, k.options.Patience)
	defer cancel()
	stream, err := k.client().Stats(ctx, &pb.StatsRequest{})
	if err != nil {
		return nil, failf("Stats: %w", err)
	}
	var all []*pb.Counter
	for {
		m, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return all, nil
		case status.Code(err) == codes.Unimplemented:
			return nil, errBlind
		case err != nil:
			return nil, failf("Stats: %w", err)
		}
		all = append(all, m.GetCounters()...)
	}
}

// sees demands that exactly this is programmed. It returns errBlind if that
// cannot be seen.
func (k *kit) sees(ctx context.Context, after string, want programmed) error {
	got, err := k.observe(ctx)
	if err != nil {
		return err
	}
	if len(got) != len(want) {
		return fmt.Errorf("after %s there are %v, want %v", after, got, want)
	}
	for svc, n := range want {
		if has, there := got[svc]; !there || has != n {
			return fmt.Errorf("after %s there are %v, want %v", after, got, want)
		}
	}
	k.sights++
	return nil
}

// seesIfCan is sees for checks that have other evidence too.
func (k *kit) seesIfCan(ctx context.Context, after string, want programmed) error {
	err := k.sees(ctx, after, want)
	if errors.Is(err, errBlind) {
		k.blind = true
		return nil
	}
	return err
}

// evidence is what a check has to tell.
func (k *kit) evidence() string {
	notes := k.notes
	switch {
	case k.sights > 0:
		notes = append(notes, fmt.Sprintf("looked %d times: what was programmed was right", k.sights))
	case k.blind:
		notes = append(notes, "what is programmed is not observable")
	}
	return strings.Join(notes, "; ")
}
