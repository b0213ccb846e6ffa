package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/core/raft"
	"github.com/fairlead/fairlead/core/raft/snap"
	"github.com/fairlead/fairlead/core/raft/transport/transportpb"
)

var (
	errStalled   = fmt.Errorf("transport: nothing moved for %v", stallTimeout)
	errUncertain = fmt.Errorf("transport: the snapshot was sent, and the other side did not say within %v that it has it", commitTimeout)
)

const (
	// pieceBytes is how much of a file goes at once.
	pieceBytes = 1 << 20
	// snapshotPause is how long a server is spared after a snapshot did not reach it.
	snapshotPause = time.Second
)

// sendSnapshot sends a snapshot, on a connection that is for it alone, and returns
// when the other side has it.
func (p *peer) sendSnapshot(m *pb.Message, meta snap.Meta, file io.Reader) error {
	if !p.snapshots.TryLock() {
		return fmt.Errorf("transport: another snapshot is on its way to server %d", p.id)
	}
	defer p.snapshots.Unlock()
	message, err := proto.Marshal(m)
	if err != nil {
		return fmt.Errorf("transport: %w", err)
	}
	l := &link{t: p.t, to: p.id, ledger: p.t.snapshots}
	defer l.close()
	conn, err := l.open()
	if err != nil {
		return err
	}
	defer l.release(conn)
	p.t.metrics.opened.WithLabelValues(string(snapshots)).Inc()
	return l.failed(p.pour(conn.ClientConn, &transportpb.SnapshotHeader{
		Message: message, Cluster: meta.Cluster, Index: meta.Index, Term: meta.Term, Membership: meta.Membership,
	}, file))
}

// pour sends a header and then the file, as fast as the other side takes it.
func (p *peer) pour(conn *grpc.ClientConn, header *transportpb.SnapshotHeader, file io.Reader) error {
	ctx, cancel := context.WithCancelCause(p.t.greet(p.ctx, p.id))
	defer cancel(nil)
	stalled := time.AfterFunc(stallTimeout, func() { cancel(errStalled) })
	defer stalled.Stop()
	out, err := transportpb.NewTransportClient(conn).Snapshot(ctx)
	if err != nil {
		return cause(ctx, err)
	}
	err = out.Send(&transportpb.SnapshotRequest{Header: header})
	piece := make([]byte, min(pieceBytes, p.t.cfg.Limits.FrameBytes-frameOverhead))
	for err == nil {
		n, readErr := io.ReadFull(file, piece)
		if n > 0 {
			stalled.Reset(stallTimeout)
			if err = out.Send(&transportpb.SnapshotRequest{Data: piece[:n]}); err == nil {
				p.t.metrics.sentBytes.WithLabelValues(string(snapshots)).Add(float64(n))
			}
		}
		switch {
		case errors.Is(readErr, io.EOF), errors.Is(readErr, io.ErrUnexpectedEOF):
			readErr = nil
			if err == nil {
				err = io.EOF // of the file; or, as below, of the stream
			}
		case readErr != nil:
			return fmt.Errorf("transport: the snapshot cannot be read: %w", readErr)
		}
	}
	if !errors.Is(err, io.EOF) {
		return cause(ctx, err)
	}
	stalled.Stop()
	late := time.AfterFunc(commitTimeout, func() { cancel(errUncertain) })
	defer late.Stop()
	_, err = out.CloseAndRecv()
	return cause(ctx, err)
}

// pieces is a snapshot that comes in, as a reader.
type pieces struct {
	stop <-chan struct{}
	next chan piece
	rest []byte
}

type piece struct {
	data []byte
	err  error
}

// Read implements io.Reader.
func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		timer := time.NewTimer(stallTimeout)
		defer timer.Stop()
		select {
		case next := <-p.next:
			if next.err != nil {
				return 0, next.err
			}
			p.rest = next.data
		case <-timer.C:
			return 0, errStalled
		case <-p.stop:
			return 0, errStopped
		}
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// Snapshot takes a snapshot.
func (s service) Snapshot(in grpc.ClientStreamingServer[transportpb.SnapshotRequest, transportpb.SnapshotResponse]) error {
	t := s.t
	from, err := t.admit(in.Context())
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	defer close(ended)
	data := &pieces{stop: t.ctx.Done(), next: make(chan piece)}
	begin := make(chan *transportpb.SnapshotRequest, 1)
	ok := t.spawn(func() {
		for isFirst := true; ; isFirst = false {
			r, err := in.Recv()
			if isFirst && err == nil {
				begin <- r
				continue
			}
			select {
			case data.next <- piece{r.GetData(), err}:
			case <-ended:
				return
			}
			if err != nil {
				return
			}
		}
	})
	if !ok {
		return errUnavailable
	}
	select {
	case r := <-begin:
		err = t.takeSnapshot(from, r.GetHeader(), data)
	case p := <-data.next:
		err = p.err
	case <-time.After(stallTimeout):
		err = errStalled
	case <-t.ctx.Done():
		err = errUnavailable
	}
	if err != nil {
		return status.Error(codes.Aborted, status.Convert(err).Message())
	}
	return in.SendAndClose(&transportpb.SnapshotResponse{})
}

func (t *Transport) takeSnapshot(from uint64, h *transportpb.SnapshotHeader, data io.Reader) error {
	m := &pb.Message{}
	if err := proto.Unmarshal(h.GetMessage(), m); err != nil {
		return fmt.Errorf("transport: no message of Raft: %w", err)
	}
	if m.GetFrom() != from {
		return errImpostor
	}
	err := errUnavailable
	t.tell(func(to raft.Handler) {
		err = to.ReceiveSnapshot(m, snap.Meta{Cluster: h.GetCluster(), Index: h.GetIndex(), Term: h.GetTerm(), Membership: h.GetMembership()}, data)
	})
	return err
}
