package health

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
)

// grpcStream is the one stream of a probe's connection (RFC 9113 §5.1.1).
const grpcStream = 1

// grpcPrefix is the length of what goes before a message: whether it is
// compressed, and its length.
const grpcPrefix = 5

// grpcRequest is all that a gRPC probe sends: preface, settings, and one whole
// call of Health/Check. A client need not wait for the server's settings (RFC
// 9113 §3.4), so this is one write, as for HTTP. A ClientConn for each probe
// would cost some ten times as much.
func grpcRequest(e *entry) []byte {
	message, err := proto.Marshal(&grpc_health_v1.HealthCheckRequest{Service: e.check.Service})
	if err != nil {
		return nil // not with valid UTF-8, which Validate asks for
	}
	var header bytes.Buffer
	enc := hpack.NewEncoder(&header)
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: grpc_health_v1.Health_Check_FullMethodName},
		{Name: ":authority", Value: e.target.String()},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "user-agent", Value: userAgent},
		{Name: "te", Value: "trailers"},
	} {
		_ = enc.WriteField(f) // into memory
	}
	body := append(make([]byte, grpcPrefix), message...)
	binary.BigEndian.PutUint32(body[1:], uint32(len(message))) //nolint:gosec // at most MaxTargetBytes and a little

	var all bytes.Buffer
	all.WriteString(http2.ClientPreface)
	fr := http2.NewFramer(&all, nil)
	_ = fr.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 0})
	_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: grpcStream, BlockFragment: header.Bytes(), EndHeaders: true})
	_ = fr.WriteData(grpcStream, true, body)
	return all.Bytes()
}

// grpcAnswer is what came on the stream.
type grpcAnswer struct {
	http    string // :status
	code    string // grpc-status
	message string // grpc-message
	body    []byte
}

// readGRPC reads up to the end of the stream.
func (h *reader) readGRPC(from io.Reader) (outcome, error) {
	h.from = bounded{from: from, left: headerBytes}
	h.buf.Reset(&h.from)
	fr := http2.NewFramer(io.Discard, h.buf)
	fr.ReadMetaHeaders = hpack.NewDecoder(4<<10, nil)
	fr.MaxHeaderListSize = 16 << 10
	fr.SetMaxReadFrameSize(16 << 10) // what a peer may send that was told nothing else
	var a grpcAnswer
	for {
		frame, err := fr.ReadFrame()
		switch {
		case err == nil:
		case errors.Is(h.from.err, errTooLong):
			return outcome{}, fmt.Errorf("the answer is longer than %d bytes", headerBytes)
		case errors.Is(h.from.err, io.EOF):
			return outcome{}, errors.New("the connection ended before the answer did")
		case h.from.err != nil:
			return outcome{}, h.from.err
		default:
			return outcome{}, fmt.Errorf("the answer is not HTTP/2: %w", err)
		}
		ended, err := a.take(frame)
		if err != nil {
			return outcome{}, err
		}
		if ended {
			return a.outcome(), nil
		}
	}
}

// take takes one frame in and reports whether it was the last of the stream.
func (a *grpcAnswer) take(frame http2.Frame) (ended bool, err error) {
	switch f := frame.(type) {
	case *http2.GoAwayFrame:
		if f.LastStreamID < grpcStream {
			return false, fmt.Errorf("the server goes away: %s", f.ErrCode)
		}
	case *http2.RSTStreamFrame:
		return false, fmt.Errorf("the server ended the call: %s", f.ErrCode)
	case *http2.DataFrame:
		if f.StreamID == grpcStream && len(a.body) < MaxOutputBytes {
			a.body = append(a.body, f.Data()...)
		}
		return f.StreamID == grpcStream && f.StreamEnded(), nil
	case *http2.MetaHeadersFrame:
		if f.StreamID != grpcStream {
			return false, nil
		}
		for _, field := range f.Fields {
			switch field.Name {
			case ":status":
				a.http = field.Value
			case "grpc-status":
				a.code = field.Value
			case "grpc-message":
				a.message = field.Value
			}
		}
		// Interim answers have no end of stream either.
		return f.StreamEnded(), nil
	}
	return false, nil
}

func (a *grpcAnswer) outcome() outcome {
	no := func(format string, args ...any) outcome {
		return outcome{result: resultStatus, output: clip(fmt.Sprintf(format, args...))}
	}
	if a.code == "" {
		return no("no gRPC answer, but HTTP status %s", a.http)
	}
	code, err := strconv.ParseUint(a.code, 10, 32)
	if err != nil {
		return no("a gRPC status of %q", a.code)
	}
	switch c := codes.Code(code); c {
	case codes.OK:
	case codes.NotFound:
		return no("the server does not know this service")
	case codes.Unimplemented:
		return no("the server has no grpc.health.v1.Health")
	default:
		text, err := url.PathUnescape(a.message)
		if err != nil {
			text = a.message
		}
		return no("%s: %s", c, text)
	}
	var m grpc_health_v1.HealthCheckResponse
	if len(a.body) < grpcPrefix || a.body[0] != 0 || int(binary.BigEndian.Uint32(a.body[1:])) != len(a.body)-grpcPrefix ||
		proto.Unmarshal(a.body[grpcPrefix:], &m) != nil {
		return no("an answer of %d bytes that cannot be read", len(a.body))
	}
	if m.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		return no("%s", m.GetStatus())
	}
	return outcome{output: "SERVING"}
}
