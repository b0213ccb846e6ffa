package transport

import (
	"encoding/binary"
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// appendMessage appends a message to the bytes of a stream, its length first.
func appendMessage(b []byte, m *pb.Message, size int) ([]byte, error) {
	b, err := proto.MarshalOptions{}.MarshalAppend(binary.AppendUvarint(b, uint64(size)), m)
	if err != nil {
		return nil, fmt.Errorf("transport: %w", err)
	}
	return b, nil
}

// assembler makes messages of the bytes of a stream, however it is cut.
type assembler struct {
	// Invariant: rest is the beginning of one message, shorter than it.
	rest []byte
}

// add takes the next bytes, and yields the messages that are complete by them.
func (a *assembler) add(data []byte, yield func(*pb.Message) error) error {
	if len(a.rest) > 0 {
		a.rest = append(a.rest, data...)
		data = a.rest
	}
	for {
		size, n := binary.Uvarint(data)
		switch {
		case n < 0 || n > 0 && size > messageBytes:
			return fmt.Errorf("transport: a message of more than %d bytes", messageBytes)
		case n == 0 || uint64(len(data)-n) < size:
			a.keep(data)
			return nil
		}
		m := &pb.Message{}
		if err := proto.Unmarshal(data[n:n+int(size)], m); err != nil {
			return fmt.Errorf("transport: no message of Raft: %w", err)
		}
		data = data[n+int(size):]
		if err := yield(m); err != nil {
			return err
		}
	}
}

// keep makes data the rest. It may be the end of what was the rest.
func (a *assembler) keep(data []byte) {
	if len(data) == 0 {
		a.rest = nil
		return
	}
	a.rest = append(a.rest[:0], data...)
}
