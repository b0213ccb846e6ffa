package observe

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

// statsTimeout bounds how long one provider may take to count.
const statsTimeout = 5 * time.Second

// Stats is what one provider counted.
type Stats struct {
	Provider string
	Counters []dataplane.Counter // in the provider's order
	Err      error               // why there are none, or not all
}

// Stats asks every running provider for its counters: those of a service and
// its endpoints, or with the zero key all. Providers that do not count are left
// out.
func (h *Hub) Stats(ctx context.Context, service dataplane.Key) []Stats {
	ctx, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	var out []Stats
	var mu sync.Mutex
	var asking sync.WaitGroup
	for _, p := range h.running() {
		asking.Go(func() {
			s, ok := p.stats(ctx, service)
			mu.Lock()
			defer mu.Unlock()
			if ok {
				out = append(out, s)
			}
		})
	}
	asking.Wait()
	slices.SortFunc(out, func(a, b Stats) int { return strings.Compare(a.Provider, b.Provider) })
	return out
}

// Providers names the running providers.
func (h *Hub) Providers() []string {
	var out []string
	for _, p := range h.running() {
		out = append(out, p.name)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (h *Hub) running() []*provider {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []*provider
	for p := range h.providers {
		out = append(out, p)
	}
	return out
}

// stats reports also whether the provider counts.
func (p *provider) stats(ctx context.Context, service dataplane.Key) (Stats, bool) {
	out := Stats{Provider: p.name}
	stream, err := p.client.Stats(ctx, &pb.StatsRequest{})
	for err == nil {
		var m *pb.StatsResponse
		if m, err = stream.Recv(); err != nil {
			break
		}
		for _, c := range m.GetCounters() {
			if counter := transfer.DecodeCounter(c); service == (dataplane.Key{}) || counter.Service == service {
				out.Counters = append(out.Counters, counter)
			}
		}
	}
	if status.Code(err) == codes.Unimplemented {
		return out, false
	}
	if !errors.Is(err, io.EOF) {
		out.Err = err
	}
	return out, true
}
