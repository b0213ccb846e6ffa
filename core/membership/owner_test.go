package membership_test

import (
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/membership"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// TestAnswersThatWaitAreReadBeforeATimerJudges lets the owner sleep right after
// it sent a ping, as a stopped process or a starved core does. The ack arrives
// meanwhile, so no helper is to be asked, let alone anybody accused.
func TestAnswersThatWaitAreReadBeforeATimerJudges(t *testing.T) {
	for name, pause := range map[string]sleep{
		// Waits for an ack last 100 ms once the round trip is known.
		"a little late, answer in the queue":      {owner: 110 * time.Millisecond},
		"very late, reader wakes after the owner": {owner: 300 * time.Millisecond, reader: 305 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			for range 12 { // a select picks at random
				inCluster(t, func(t *testing.T, c *cluster) {
					sleeper := &sleeper{}
					n := c.start(1, func(cfg *membership.Config) {
						sleeper.Transport = cfg.Transport
						cfg.Transport = sleeper
					})
					for i := 2; i <= 4; i++ {
						c.start(i)
					}
					c.pass(10 * time.Second)
					sleeper.next.Store(&pause)
					c.pass(10 * time.Second)
					if sleeper.next.Load() != nil {
						t.Fatal("never slept")
					}
					if got := n.metric(t, "probes_indirect_total"); got != 0 {
						t.Errorf("%v probes asked helpers although the ack was there", got)
					}
				})
			}
		})
	}
}

// sleep is how long the owner and the reader do not run.
type sleep struct{ owner, reader time.Duration }

// sleeper makes the owner sleep after the next ping that it sends.
type sleeper struct {
	membership.Transport
	next  atomic.Pointer[sleep]
	until atomic.Pointer[time.Time] // the reader's
}

func (s *sleeper) WritePacket(data []byte, to netip.AddrPort) error {
	err := s.Transport.WritePacket(data, to)
	p, bad := wire.NewCodec("test").Open(data)
	if now := s.next.Load(); now != nil && bad == nil && p.First() == wire.Ping {
		until := time.Now().Add(now.reader)
		s.until.Store(&until)
		s.next.Store(nil)
		<-time.After(now.owner)
	}
	return err
}

func (s *sleeper) ReadPacket(buf []byte) (int, netip.AddrPort, error) {
	n, from, err := s.Transport.ReadPacket(buf)
	if until := s.until.Load(); until != nil {
		<-time.After(time.Until(*until))
	}
	return n, from, err
}

// TestTransportErrorsAreCountedAndSurvived lets every second operation fail.
func TestTransportErrorsAreCountedAndSurvived(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		c.start(1)
		n := c.start(2, func(cfg *membership.Config) { cfg.Transport = &flaky{Transport: cfg.Transport} })
		c.await(10*time.Second, "the node joins all the same", func() bool { return n.Snapshot().Live() == 2 })
		c.pass(20 * time.Second)
		for _, reason := range []string{"send-error", "receive-error"} {
			if n.metric(t, "dropped_total", reason) == 0 {
				t.Errorf("no %s counted", reason)
			}
		}
		if n.metric(t, "streams_total", "in", "accept-error") == 0 {
			t.Error("no accept-error counted")
		}
	})
}

type flaky struct {
	membership.Transport
	sent, read, accepted atomic.Int64
}

var errFlaky = &net.OpError{Op: "test", Err: net.UnknownNetworkError("flaky")}

func (f *flaky) WritePacket(data []byte, to netip.AddrPort) error {
	if f.sent.Add(1)%2 == 0 {
		return errFlaky
	}
	return f.Transport.WritePacket(data, to)
}

func (f *flaky) ReadPacket(buf []byte) (int, netip.AddrPort, error) {
	if f.read.Add(1)%2 == 0 {
		return 0, netip.AddrPort{}, errFlaky
	}
	return f.Transport.ReadPacket(buf)
}

func (f *flaky) AcceptStream() (net.Conn, error) {
	if f.accepted.Add(1)%2 == 1 {
		return nil, errFlaky
	}
	return f.Transport.AcceptStream()
}
