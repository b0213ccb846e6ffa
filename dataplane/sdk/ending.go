package sdk

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

// Cleanup removes what the provider left. What it removed is not applied any
// more, so the host has to send a snapshot afterwards.
func (s *Service) Cleanup(ctx context.Context, r *pb.CleanupRequest) (*pb.CleanupResponse, error) {
	items, err := s.cleanup(ctx, r)
	if err != nil {
		return nil, transfer.ToWire(err)
	}
	return transfer.EncodeCleanupItems(items), nil
}

func (s *Service) cleanup(ctx context.Context, r *pb.CleanupRequest) ([]dataplane.CleanupItem, error) {
	release, err := s.take("Cleanup")
	if err != nil {
		return nil, err
	}
	defer release()
	what := dataplane.CleanupOptions{InstanceID: r.GetInstanceId(), DryRun: r.GetDryRun(), Linger: r.GetLinger()}
	if what.InstanceID == "" {
		what.InstanceID = s.instance()
	}
	switch r.GetScope() {
	case pb.CleanupScope_CLEANUP_SCOPE_ALL_KNOWN:
		what.AllKnown = true
	case pb.CleanupScope_CLEANUP_SCOPE_OWNED:
		if what.InstanceID == "" {
			return nil, fmt.Errorf("%w: Cleanup of owned objects without an instance_id, before Configure: give one", dataplane.ErrInvalid)
		}
	default:
		return nil, fmt.Errorf("%w: Cleanup of scope %v, which is not known", dataplane.ErrInvalid, r.GetScope())
	}
	ctx, cancel := s.join(ctx)
	defer cancel()
	var items []dataplane.CleanupItem
	err = s.call("Cleanup", func() (err error) { items, err = s.provider.Cleanup(ctx, what); return err })
	if !what.DryRun && (what.AllKnown || what.InstanceID == s.instance()) {
		s.forget()
		s.publish()
	}
	if err != nil && len(items) > 0 { // what was removed has to be told
		return append(items, dataplane.CleanupItem{Object: s.info.Name, Result: dataplane.Failed, Message: err.Error()}), nil
	}
	return items, err
}

// Shutdown prepares the provider for its end. When it succeeds the service is
// done, and with it the process.
func (s *Service) Shutdown(ctx context.Context, r *pb.ShutdownRequest) (*pb.ShutdownResponse, error) {
	policy := dataplane.ShutdownPolicy(r.GetPolicy())
	if policy != dataplane.ShutdownKeep && policy != dataplane.ShutdownRemove {
		return nil, transfer.ToWire(fmt.Errorf("%w: Shutdown policy %v is not known", dataplane.ErrInvalid, r.GetPolicy()))
	}
	release, err := s.take("Shutdown")
	if err != nil {
		return nil, transfer.ToWire(err)
	}
	defer release()
	ctx, cancel := s.join(ctx)
	defer cancel()
	if err := s.shutdown(ctx, policy); err != nil {
		return nil, transfer.ToWire(err)
	}
	return &pb.ShutdownResponse{}, nil
}

// shutdown calls the provider's, once. The caller has the turn.
func (s *Service) shutdown(ctx context.Context, policy dataplane.ShutdownPolicy) error {
	if s.shut {
		return nil
	}
	if err := s.call("Shutdown", func() error { return s.provider.Shutdown(ctx, policy) }); err != nil {
		return err
	}
	s.shut = true
	if policy == dataplane.ShutdownRemove {
		s.forget()
		s.publish()
	}
	s.end()
	return nil
}

// Stop ends the service as a signal does: the call under way has a third of the
// budget to finish and another to notice that it is cancelled, then
// Shutdown(keep) has the rest. It returns within the budget, also if the
// provider does not.
func (s *Service) Stop(budget time.Duration) error {
	defer s.Close()
	if s.Panicked() != nil {
		return nil // nobody knows what another call would do
	}
	ctx, cancel := context.WithTimeout(context.Background(), budget)
	defer cancel()
	release, err := s.waitThenCancel(budget / 3)
	if err != nil {
		return err
	}
	result := make(chan error, 1)
	go func() {
		defer release()
		result <- s.shutdown(ctx, dataplane.ShutdownKeep)
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: Shutdown did not return in time", dataplane.ErrFailed)
	}
}

func (s *Service) waitThenCancel(patience time.Duration) (release func(), err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if release, err = s.turn.wait(ctx, "Shutdown"); err == nil {
		return release, nil
	}
	s.cancel()
	again, cancelAgain := context.WithTimeout(context.Background(), patience)
	defer cancelAgain()
	return s.turn.wait(again, "Shutdown")
}
