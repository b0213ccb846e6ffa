package transfer

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// An encoded Change holds its parts as bytes of the wire, where a message keeps
// fields that it does not know. It goes over the wire as any other Change; an
// object for each endpoint of a large snapshot would cost more than all else
// that is done with it.

// encodedChange returns the Change that consists of b, which must not be
// written any more.
func encodedChange(b []byte) *pb.Change {
	c := &pb.Change{}
	c.ProtoReflect().SetUnknown(b)
	return c
}

// bytesOf returns a Change, encoded or not, in the form of the wire.
func bytesOf(c *pb.Change) ([]byte, error) {
	b := c.ProtoReflect().GetUnknown()
	if len(b) == proto.Size(c) {
		return b, nil
	}
	b, err := proto.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", dataplane.ErrInvalid, err)
	}
	return b, nil
}
