package sdk

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

// healthPatience is how long a check of the data path may take.
const healthPatience = 2 * time.Second

// vital runs one health check at a time; who asks meanwhile gets its result. So
// a provider that hangs costs one goroutine, however often it is asked.
type vital struct {
	mu      sync.Mutex
	running chan struct{}    // nil: none
	last    dataplane.Health // valid when running is closed
	known   dataplane.HealthState
}

// Health checks the data path. It answers within healthPatience, whatever the
// provider does.
func (s *Service) Health(ctx context.Context, _ *pb.HealthRequest) (*pb.HealthResponse, error) {
	h, err := s.health(ctx)
	if err != nil {
		return nil, transfer.ToWire(err)
	}
	return transfer.EncodeHealth(h), nil
}

func (s *Service) health(ctx context.Context) (dataplane.Health, error) {
	v := &s.vital
	v.mu.Lock()
	if v.running == nil {
		v.running = make(chan struct{})
		go s.checkHealth(v.running)
	}
	running := v.running
	v.mu.Unlock()

	patience := time.NewTimer(healthPatience)
	defer patience.Stop()
	select {
	case <-running:
		v.mu.Lock()
		defer v.mu.Unlock()
		return v.last, nil
	case <-ctx.Done():
		return dataplane.Health{}, fmt.Errorf("the check of the data path is not done: %w", ctx.Err())
	case <-s.done:
		return dataplane.Health{State: dataplane.HealthFailed, Reasons: []string{"the provider ends"}}, nil
	case <-patience.C:
		reason := fmt.Sprintf("the check of the data path gave no answer in %v", healthPatience)
		if now := s.turn.now.Load(); now != nil {
			reason += fmt.Sprintf("; %s is under way", s.turn.holder())
		}
		h := dataplane.Health{State: dataplane.HealthFailed, Reasons: []string{reason}}
		s.noteHealth(h)
		return h, nil
	}
}

// checkHealth asks the provider and closes running.
func (s *Service) checkHealth(running chan struct{}) {
	ctx, cancel := context.WithTimeout(s.ctx, healthPatience)
	defer cancel()
	var h dataplane.Health
	err := s.call("Health", func() error { h = s.provider.Health(ctx); return nil })
	switch {
	case err != nil:
		h = dataplane.Health{State: dataplane.HealthFailed, Reasons: []string{err.Error()}}
	case h.State < dataplane.HealthStarting || h.State > dataplane.HealthFailed:
		h = dataplane.Health{State: dataplane.HealthFailed, Reasons: append([]string{fmt.Sprintf("the provider says %v", h.State)}, h.Reasons...)}
	}
	s.vital.mu.Lock()
	s.vital.last, s.vital.running = h, nil
	s.vital.mu.Unlock()
	close(running)
	s.noteHealth(h)
}

// noteHealth tells those who watch when the state is another one.
func (s *Service) noteHealth(h dataplane.Health) {
	s.vital.mu.Lock()
	changed := s.vital.known != h.State
	s.vital.known = h.State
	s.vital.mu.Unlock()
	if changed {
		s.hub.all(dataplane.Event{Health: &h})
	}
}
