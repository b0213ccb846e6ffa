package sdk

import (
	"fmt"
	"runtime/debug"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

// call calls into the provider. A panic there leaves it in a state that nobody
// knows: the service ends, and every later call fails.
func (s *Service) call(name string, f func() error) (err error) {
	if p := s.fault.Load(); p != nil {
		return panicError(name, p)
	}
	defer func() {
		if v := recover(); v != nil {
			p := &handshake.Panic{Panic: fmt.Sprint(v), Call: name, Stack: string(debug.Stack())}
			if s.fault.CompareAndSwap(nil, p) {
				s.end()
			}
			err = panicError(name, p)
		}
	}()
	return f()
}

func panicError(call string, p *handshake.Panic) error {
	return fmt.Errorf("%w: %s: the provider panicked in %s and its process ends: %s", dataplane.ErrFailed, call, p.Call, p.Panic)
}
