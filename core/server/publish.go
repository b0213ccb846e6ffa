package server

import (
	"context"
	"encoding/json"
	"reflect"
	"time"

	"github.com/fairlead/fairlead/core/store"
)

const (
	publishTimeout = 5 * time.Second
	publishAgain   = time.Second
)

// publish writes this server's record, unless it is there.
func (s *Server) publish(ctx context.Context) {
	for ctx.Err() == nil && s.Err() == nil {
		changed := s.Changed()
		if s.State().Leader != 0 && s.publishOnce(ctx) == nil {
			return
		}
		again := time.NewTimer(publishAgain)
		select {
		case <-changed:
		case <-again.C:
		case <-s.Done():
		case <-ctx.Done():
		}
		again.Stop()
	}
}

// publishOnce compares with a state that is not old, so that a restart writes
// nothing.
func (s *Server) publishOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	v, err := s.Read(ctx)
	if err != nil {
		return err
	}
	own := s.cfg.record()
	if reflect.DeepEqual(publishedBy(v)[s.ID()], own) {
		return nil
	}
	value, err := json.Marshal(own)
	if err != nil {
		return err
	}
	r, err := s.Propose(ctx, store.Command{Space: store.System, Op: &store.Op{Put: &store.PutOp{Key: ServersPrefix + formatID(s.ID()), Value: value}}})
	if err != nil {
		return err
	}
	return r.Err
}
