package membership_test

import (
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/membership"
	"github.com/fairlead/fairlead/core/swim"
)

// TestLateTimerReadsBeforeItJudges stops the clock of one node's owner, as a
// stopped process or a starved core does: what it sees is late by seconds, but
// answers have arrived meanwhile. Nobody may be accused.
func TestLateTimerReadsBeforeItJudges(t *testing.T) {
	inCluster(t, func(t *testing.T, c *cluster) {
		frozen := &freezer{}
		n := c.start(1, func(cfg *membership.Config) {
			frozen.Transport = cfg.Transport
			cfg.Transport = frozen
		})
		for i := 2; i <= 5; i++ {
			c.start(i)
		}
		c.await(3*time.Second, "5 nodes", func() bool { return n.Snapshot().Live() == 5 })
		for range 20 {
			// For 300 ms, a third of a period, nothing gets out of the owner.
			frozen.pause.Store(int64(300 * time.Millisecond))
			c.pass(2 * time.Second)
		}
		if frozen.paused.Load() < 20 {
			t.Fatalf("paused %d times, want 20", frozen.paused.Load())
		}
		for _, e := range n.history(t) {
			if e.Kind == swim.EventSuspected {
				t.Errorf("accused %s after a pause of its own", e.Member.Name)
			}
		}
	})
}

// freezer makes the owner wait once inside the next datagram that it sends.
type freezer struct {
	membership.Transport
	pause  atomic.Int64
	paused atomic.Int64
}

func (f *freezer) WritePacket(data []byte, to netip.AddrPort) error {
	if d := f.pause.Swap(0); d > 0 {
		f.paused.Add(1)
		<-time.After(time.Duration(d))
	}
	return f.Transport.WritePacket(data, to)
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
