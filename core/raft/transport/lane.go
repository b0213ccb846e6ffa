package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/core/raft/transport/transportpb"
)

// lane is one channel of messages to one server. One goroutine owns it.
type lane struct {
	p       *peer
	channel channel
	queue   *queue[outgoing]
	link    *link

	stream  *stream // nil: none
	conn    *dialed // that the stream is on
	retry   retry
	down    bool   // it was logged that messages do not reach the server
	encoded []byte // used again and again
}

type outgoing struct {
	message *pb.Message
	size    int
}

const (
	// batchBytes is about how much of a queue is encoded at once.
	batchBytes = 1 << 20
	// keptBytes is how large a buffer may be that is kept.
	keptBytes = 4 << 20
	// frameOverhead is more than what a frame has beside its data.
	frameOverhead = 64
)

func newLane(p *peer, c channel) *lane {
	return &lane{p: p, channel: c, queue: newQueue[outgoing](p.t.cfg.Limits), link: &link{t: p.t, to: p.id}}
}

func (l *lane) run() {
	defer l.link.close()
	defer l.hangUp()
	for {
		batch := l.queue.take(l.p.ctx.Done(), batchBytes)
		if batch == nil {
			return
		}
		l.carry(batch)
	}
}

// carry sends messages, or loses them. A stream that broke since it was used last
// is replaced once.
func (l *lane) carry(batch []outgoing) {
	now := time.Now()
	if !l.retry.due(now) {
		l.lost(len(batch), "unreachable")
		return
	}
	err := l.encode(batch)
	for err == nil {
		fresh := l.stream == nil
		if err = l.deliver(); err == nil {
			l.sent(batch)
			return
		}
		l.hangUp()
		if !fresh || errors.Is(err, errMoved) {
			// Once more. What the other side said of the stream may be of interest.
			if c := status.Code(err); c != codes.Unavailable && c != codes.Canceled {
				l.complain(l.link.failed(err))
			}
			err = nil
		}
	}
	if l.p.ctx.Err() != nil {
		return
	}
	l.retry.failed(time.Now())
	l.lost(len(batch), "unreachable")
	l.complain(l.link.failed(err))
}

func (l *lane) complain(err error) {
	if l.p.t.complaints.isNew(fmt.Sprintf("to %d on %s", l.p.id, l.channel), err.Error()) {
		l.down = true
		l.p.t.cfg.Log.Warn("messages do not reach another server", "to", l.p.id, "channel", l.channel, "error", err)
	}
}

func (l *lane) encode(batch []outgoing) error {
	if cap(l.encoded) > keptBytes {
		l.encoded = nil
	}
	l.encoded = l.encoded[:0]
	for _, o := range batch {
		var err error
		if l.encoded, err = appendMessage(l.encoded, o.message, o.size); err != nil {
			return err
		}
	}
	return nil
}

// deliver sends what is encoded, on a stream that it opens if there is none.
func (l *lane) deliver() error {
	if l.stream != nil && l.link.moved(l.conn) {
		return errMoved
	}
	if l.stream == nil {
		conn, err := l.link.open()
		if err != nil {
			return err
		}
		if l.stream, err = l.p.open(conn.ClientConn, func() bool { return l.link.moved(conn) }); err != nil {
			l.link.release(conn)
			return err
		}
		l.conn = conn
		l.p.t.metrics.opened.WithLabelValues(string(l.channel)).Inc()
		if l.down {
			l.down = false
			l.p.t.cfg.Log.Info("another server is reached again", "to", l.p.id, "channel", l.channel)
		}
	}
	return l.stream.send(l.encoded, l.p.t.cfg.Limits.FrameBytes-frameOverhead)
}

func (l *lane) sent(batch []outgoing) {
	l.retry = retry{}
	l.p.t.metrics.sent.WithLabelValues(string(l.channel)).Add(float64(len(batch)))
	l.p.t.metrics.sentBytes.WithLabelValues(string(l.channel)).Add(float64(len(l.encoded)))
}

// lost counts messages that are lost, and has the handler told.
func (l *lane) lost(n int, reason string) {
	l.p.t.metrics.lost.WithLabelValues(string(l.channel), reason).Add(float64(n))
	l.p.lostSome()
}

func (p *peer) lostSome() {
	select {
	case p.unreachable <- struct{}{}:
	default:
	}
}

func (l *lane) hangUp() {
	if l.stream != nil {
		l.stream.cancel(nil)
		l.link.release(l.conn)
		l.stream, l.conn = nil, nil
	}
}

// retry is when to try again.
type retry struct {
	failures int
	at       time.Time
}

func (r *retry) due(now time.Time) bool { return !now.Before(r.at) }

func (r *retry) failed(now time.Time) {
	wait := min(lastRetry, firstRetry<<min(r.failures, 10))
	r.failures++
	r.at = now.Add(wait/2 + rand.N(wait)) // half to one and a half of it
}

// stream is an open stream of messages.
type stream struct {
	out    grpc.ClientStreamingClient[transportpb.MessagesRequest, transportpb.MessagesResponse]
	ctx    context.Context
	cancel context.CancelCauseFunc
	broken chan struct{} // closed when it ended
	err    error         // why, once it is broken
}

var errMoved = status.Error(codes.Unavailable, "transport: the server has another address now, or this node other secrets")

var errTimeout = fmt.Errorf("transport: nothing was taken for %v", ioTimeout)

// open begins a stream, and returns when the other side took it. It gives up once the
// server has moved: where it was, packets may vanish.
func (p *peer) open(conn *grpc.ClientConn, moved func() bool) (*stream, error) {
	ctx, cancel := context.WithCancelCause(p.t.greet(p.ctx, p.id))
	opened := make(chan struct{})
	defer close(opened)
	go func() {
		look, late := time.NewTicker(firstRetry), time.NewTimer(ioTimeout)
		defer look.Stop()
		defer late.Stop()
		for {
			select {
			case <-opened:
				return
			case <-late.C:
				cancel(errTimeout)
			case <-look.C:
				if moved() {
					cancel(errMoved)
				}
			}
		}
	}()
	out, err := transportpb.NewTransportClient(conn).Messages(ctx)
	if err == nil {
		header, headerErr := out.Header()
		if err = headerErr; err == nil && header == nil {
			err = out.RecvMsg(&transportpb.MessagesResponse{})
		}
	}
	if err != nil {
		defer cancel(nil)
		return nil, cause(ctx, err)
	}
	s := &stream{out: out, ctx: ctx, cancel: cancel, broken: make(chan struct{})}
	ok := p.t.spawn(func() {
		s.err = out.RecvMsg(&transportpb.MessagesResponse{})
		close(s.broken)
		p.lostSome()
		if ctx.Err() == nil {
			p.broke(conn)
		}
	})
	if !ok {
		cancel(nil)
		return nil, errStopped
	}
	return s, nil
}

// cause is why a call failed: what ended its context says more than that it ended.
func cause(ctx context.Context, err error) error {
	if why := context.Cause(ctx); why != nil && !errors.Is(why, context.Canceled) {
		return why
	}
	return err
}

// send sends data in frames of so many bytes.
func (s *stream) send(data []byte, frame int) error {
	watch := time.AfterFunc(ioTimeout, func() { s.cancel(errTimeout) })
	defer watch.Stop()
	for len(data) > 0 {
		select {
		case <-s.broken:
			return cause(s.ctx, s.err)
		default:
		}
		n := min(len(data), frame)
		// Send has encoded the frame when it returns, so that data may change then.
		if err := s.out.Send(&transportpb.MessagesRequest{Data: data[:n]}); err != nil {
			if errors.Is(err, io.EOF) {
				<-s.broken
				err = s.err
			}
			return cause(s.ctx, err)
		}
		data = data[n:]
		watch.Reset(ioTimeout)
	}
	return nil
}
