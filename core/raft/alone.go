package raft

import (
	"context"
	"errors"
	"io"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/fairlead/fairlead/core/raft/snap"
)

// Alone is the transport of a server that is the only one of its group: it leads
// nowhere.
type Alone struct{}

var _ Transport = Alone{}

var errAlone = errors.New("raft: this server is alone: there is no other to ask")

// Start implements Transport.
func (Alone) Start(Handler) {}

// Send implements Transport: there is nobody to send to.
func (Alone) Send(*pb.Message) {}

// SendSnapshot implements Transport. Nothing tells the Handler how it ended, as
// no group of one sends a snapshot.
func (Alone) SendSnapshot(_ *pb.Message, _ snap.Meta, file io.ReadCloser) {
	_ = file.Close() // nothing was read of it
}

// Ask implements Transport.
func (Alone) Ask(context.Context, uint64, Question) (Answer, error) { return Answer{}, errAlone }

// Stop implements Transport.
func (Alone) Stop() {}
