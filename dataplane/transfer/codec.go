package transfer

import (
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// Codec is gRPC's own codec for protobuf, but it leaves a Change as the bytes
// that it came in, for Generation.Change to read them without an object for
// each endpoint. Bytes that are no message are refused there.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2(grpcproto.Name)} }

type codec struct{ encoding.CodecV2 }

// Unmarshal reads a message.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch m := v.(type) {
	case *pb.ReconcileRequest:
		if change := onlyChange(data); change != nil {
			m.Reset()
			m.Step = &pb.ReconcileRequest_Change{Change: change}
			return nil
		}
	case *pb.FollowResponse:
		if change := onlyChange(data); change != nil {
			m.Reset()
			m.Step = &pb.FollowResponse_Change{Change: change}
			return nil
		}
	}
	return c.CodecV2.Unmarshal(data, v)
}

// changeField is the number of Change in both kinds of message.
const changeField protowire.Number = 2

// onlyChange returns the Change of a message that holds nothing else, or nil.
func onlyChange(data mem.BufferSlice) *pb.Change {
	size := data.Len()
	var head [1 + 10]byte // the tag and the length
	n := 0
	for _, part := range data {
		if n += copy(head[n:], part.ReadOnlyData()); n == len(head) {
			break
		}
	}
	num, typ, tag := protowire.ConsumeTag(head[:n])
	if tag < 0 || num != changeField || typ != protowire.BytesType {
		return nil
	}
	length, used := protowire.ConsumeVarint(head[tag:n])
	if used < 0 || length != uint64(size-tag-used) {
		return nil
	}
	return encodedChange(data.Materialize()[tag+used:])
}
