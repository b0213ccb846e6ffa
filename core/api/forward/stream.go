package forward

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
)

// pipe connects a stream of a client with one of a server. First, if it is not nil,
// is the only message that the client sends.
func pipe[Q, R any](f *face, s grpc.ServerStream, method string, first *Q) error {
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	defer context.AfterFunc(f.ctx, cancel)()
	ctx, err := f.outgoing(ctx, true)
	if err != nil {
		return err
	}
	var to grpc.ClientStream
	var at *upstream
	err = f.attempts(ctx, read, requestTimeout, func(ctx context.Context, u *upstream) (err error) {
		if to, err = u.conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method); err == nil {
			at = f.ring.keep(u)
		}
		return err
	})
	if err != nil {
		return f.final(s.Context(), ctx, err)
	}
	defer f.ring.give(at)
	if first != nil {
		_, _ = to.SendMsg(first), to.CloseSend() // what ended it is received
	} else {
		go pump[Q](s, to, cancel)
	}
	for {
		r := new(R)
		if err = to.RecvMsg(r); err != nil {
			break
		}
		if err = s.SendMsg(r); err != nil {
			return err
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	f.ring.doubt(at, err)
	return f.final(s.Context(), ctx, at.failed(err))
}

// pump passes on what the client sends, until it is done or the stream is over.
func pump[Q any](from grpc.ServerStream, to grpc.ClientStream, cancel context.CancelFunc) {
	for {
		q := new(Q)
		err := from.RecvMsg(q)
		if errors.Is(err, io.EOF) {
			_ = to.CloseSend() // it never fails
			return
		}
		if err != nil {
			cancel()
			return
		}
		if to.SendMsg(q) != nil {
			return // why is received
		}
	}
}
