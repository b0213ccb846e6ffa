package membership

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/swim/wire"
)

const (
	maxInbound   = 64
	maxOutbound  = 16
	maxFrames    = 512             // of one stream, each way: 16 MiB
	firstFrame   = 2 * time.Second // for a peer to say what it wants
	streamBuffer = 4 << 10         // to start with; see readFrame
)

// Why a frame was not used, beside the reasons of wire and swim.
var (
	errMute          = errors.New("membership: the boot counter is not written, nothing may be said")
	errTooManyFrames = errors.New("membership: too many frames on one stream")
)

// inboundStreams bounds the streams that peers opened.
type inboundStreams struct {
	mu   sync.Mutex
	open map[net.Conn]bool // true once a whole valid frame came
	max  int
}

func newInboundStreams(limit int) *inboundStreams {
	return &inboundStreams{open: map[net.Conn]bool{}, max: limit}
}

// admit makes room for conn, at need by closing one that has said nothing yet,
// and reports false if all are at work.
func (s *inboundStreams) admit(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) >= s.max {
		victim := net.Conn(nil)
		for c, spoke := range s.open {
			if !spoke {
				victim = c
				break
			}
		}
		if victim == nil {
			return false
		}
		_ = victim.Close() // its goroutine sees it and ends
		delete(s.open, victim)
	}
	s.open[conn] = false
	return true
}

// spoke protects conn from being closed for another.
func (s *inboundStreams) spoke(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.open[conn]; ok {
		s.open[conn] = true
	}
}

func (s *inboundStreams) end(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, conn)
}

// acceptStreams serves what peers open until Close.
func (m *Membership) acceptStreams() {
	result := func(r string) { m.metrics.streams.WithLabelValues("in", r).Inc() }
	for pause := time.Duration(0); m.ctx.Err() == nil; {
		conn, err := m.transport.AcceptStream()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			result("accept-error")
			pause = backOff(m.ctx, pause)
			continue
		}
		pause = 0
		if !m.inbound.admit(conn) {
			result("refused-here")
			_ = conn.Close()
			continue
		}
		m.wait.Go(func() {
			open := m.metrics.streamsOpen.WithLabelValues("in")
			open.Inc()
			defer open.Dec()
			stop := context.AfterFunc(m.ctx, func() { _ = conn.Close() })
			defer stop()
			err := m.serve(conn)
			m.inbound.end(conn)
			if err = errors.Join(err, conn.Close()); err != nil {
				result("failed")
				return
			}
			result("ok")
		})
	}
}

// serve answers one stream. Time, frames and memory are bounded whatever the
// peer does.
func (m *Membership) serve(conn net.Conn) error {
	start := time.Now()
	if err := conn.SetDeadline(start.Add(min(firstFrame, m.cfg.Swim.StreamTimeout))); err != nil {
		return err
	}
	buf := make([]byte, 0, streamBuffer)
	for n := range maxFrames {
		var err error
		if buf, err = m.receive(conn, buf); err != nil {
			if n > 0 && errors.Is(err, io.EOF) {
				return nil // sent something that has no answer
			}
			return err
		}
		if n == 0 {
			p, err := m.codec.Open(buf)
			if err != nil {
				m.metrics.reject(err)
				m.warnForeign(conn.RemoteAddr(), err)
				return err
			}
			m.inbound.spoke(conn)
			if err := conn.SetDeadline(start.Add(m.cfg.Swim.StreamTimeout)); err != nil {
				return err
			}
			if p.First() == wire.Pull {
				return m.servePull(conn, p)
			}
		}
		reply, err := m.serveFrame(buf)
		if err != nil {
			m.metrics.reject(err)
			return err
		}
		if reply != nil {
			return m.transmit(conn, reply)
		}
	}
	m.metrics.reject(errTooManyFrames)
	return errTooManyFrames
}

// serveFrame gives the node a frame and returns its answer, which may leave
// only if nothing that it caused is still unwritten.
func (m *Membership) serveFrame(frame []byte) (reply [][]byte, err error) {
	closed := m.call(func(o *owner, now time.Time) {
		reply, err = o.node.ServeFrame(frame, now)
		o.flush(now)
		if err == nil && o.unwritten != 0 {
			reply, err = nil, errMute
		}
	})
	if closed != nil {
		return nil, closed
	}
	return reply, err
}

// openStream runs a stream that the node wants; false if too many are open.
func (m *Membership) openStream(s swim.Stream) bool {
	select {
	case m.outbound <- struct{}{}:
	default:
		return false
	}
	m.wait.Go(func() {
		open := m.metrics.streamsOpen.WithLabelValues("out")
		open.Inc()
		end := m.exchange(s)
		open.Dec()
		<-m.outbound
		_ = m.call(func(o *owner, now time.Time) { o.node.StreamClosed(s.Token, end, now) }) // ErrClosed: nobody waits for it
	})
	return true
}

// exchange dials, sends, and hands every frame that comes back to the node.
func (m *Membership) exchange(s swim.Stream) swim.StreamEnd {
	ctx, cancel := context.WithTimeout(m.ctx, s.Timeout)
	defer cancel()
	result := m.metrics.streams.MustCurryWith(map[string]string{"direction": "out"})
	conn, err := m.transport.DialStream(ctx, s.To)
	if errors.Is(err, syscall.ECONNREFUSED) {
		result.WithLabelValues("refused").Inc()
		return swim.StreamRefused
	}
	if err == nil {
		err = m.converse(ctx, conn, s)
	}
	if err != nil {
		m.log.Debug("stream failed", "to", s.To, "kind", s.Kind, "error", err)
		result.WithLabelValues("failed").Inc()
		return swim.StreamFailed
	}
	result.WithLabelValues("ok").Inc()
	return swim.StreamOK
}

// converse sends the frames of s and reads the answer to its end.
func (m *Membership) converse(ctx context.Context, conn net.Conn, s swim.Stream) error {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := m.transmit(conn, s.Frames); err != nil {
		return err
	}
	buf := make([]byte, 0, streamBuffer)
	for n := range maxFrames {
		var err error
		if buf, err = m.receive(conn, buf); err != nil {
			if n > 0 && errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		var refused error
		if err := m.call(func(o *owner, now time.Time) { refused = o.node.StreamFrame(s.Token, buf, now) }); err != nil {
			return err
		}
		if refused != nil {
			m.metrics.reject(refused)
			return refused
		}
	}
	m.metrics.reject(errTooManyFrames)
	return errTooManyFrames
}

// receive reads and counts one frame.
func (m *Membership) receive(conn net.Conn, buf []byte) ([]byte, error) {
	frame, err := readFrame(conn, buf)
	if errors.Is(err, errFrameLength) {
		m.metrics.reject(err)
	}
	if err == nil {
		m.metrics.tcpIn.add(len(frame))
	}
	return frame, err
}

// transmit writes and counts frames.
func (m *Membership) transmit(conn net.Conn, frames [][]byte) error {
	if err := writeFrames(conn, frames); err != nil {
		return err
	}
	for _, f := range frames {
		m.metrics.tcpOut.add(len(f))
	}
	return nil
}

// backOff waits longer each time, so that a lasting error costs no CPU.
func backOff(ctx context.Context, last time.Duration) time.Duration {
	next := min(max(2*last, 5*time.Millisecond), time.Second)
	timer := time.NewTimer(next)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return next
}
