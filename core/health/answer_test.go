package health

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// grpcText is what a gRPC server sends for an answer.
func grpcText(body []byte, trailers ...string) []byte {
	var all, block bytes.Buffer
	fr, enc := http2.NewFramer(&all, nil), hpack.NewEncoder(&block)
	_ = fr.WriteSettings()
	_ = enc.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true})
	_ = fr.WriteData(1, false, body)
	block.Reset()
	for i := 0; i < len(trailers); i += 2 {
		_ = enc.WriteField(hpack.HeaderField{Name: trailers[i], Value: trailers[i+1]})
	}
	_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
	return all.Bytes()
}

func TestGRPCTexts(t *testing.T) {
	var away bytes.Buffer
	_ = http2.NewFramer(&away, nil).WriteGoAway(0, http2.ErrCodeNo, nil)
	var reset bytes.Buffer
	_ = http2.NewFramer(&reset, nil).WriteRSTStream(1, http2.ErrCodeRefusedStream)
	for _, test := range []struct {
		name string
		text []byte
		ok   bool
		want string // output or error
	}{
		{"serving", grpcText([]byte("\x00\x00\x00\x00\x02\x08\x01"), "grpc-status", "0"), true, "SERVING"},
		{"not serving", grpcText([]byte("\x00\x00\x00\x00\x02\x08\x02"), "grpc-status", "0"), false, "NOT_SERVING"},
		{"unknown", grpcText([]byte("\x00\x00\x00\x00\x00"), "grpc-status", "0"), false, "UNKNOWN"},
		{"no message", grpcText(nil, "grpc-status", "0"), false, "an answer of 0 bytes that cannot be read"},
		{"a compressed message", grpcText([]byte("\x01\x00\x00\x00\x02\x08\x01"), "grpc-status", "0"), false, "an answer of 7 bytes that cannot be read"},
		{"a wrong length", grpcText([]byte("\x00\x00\x00\x00\x03\x08\x01"), "grpc-status", "0"), false, "an answer of 7 bytes that cannot be read"},
		{"no protobuf", grpcText([]byte("\x00\x00\x00\x00\x01\xff"), "grpc-status", "0"), false, "an answer of 6 bytes that cannot be read"},
		{"a failure", grpcText(nil, "grpc-status", "14", "grpc-message", "not%20yet"), false, "Unavailable: not yet"},
		{"a failure with a bad text", grpcText(nil, "grpc-status", "2", "grpc-message", "100%"), false, "Unknown: 100%"},
		{"no status", grpcText(nil, "a", "b"), false, "no gRPC answer, but HTTP status 200"},
		{"a status of letters", grpcText(nil, "grpc-status", "OK"), false, `a gRPC status of "OK"`},
		{"going away", away.Bytes(), false, "the server goes away: NO_ERROR"},
		{"refused", reset.Bytes(), false, "the server ended the call: REFUSED_STREAM"},
	} {
		t.Run(test.name, func(t *testing.T) {
			out, err := newReader().readGRPC(&prefixed{test.text, http.NoBody})
			if err != nil {
				out = failure(err)
			}
			if out.ok() != test.ok || out.output != test.want {
				t.Errorf("it is %+v, want ok=%v %q", out, test.ok, test.want)
			}
		})
	}
}

// What came of an answer so far either shows the outcome of the whole, or that
// there is more to come; so it does not matter in which pieces it came.
func FuzzAnswer(f *testing.F) {
	for _, text := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfine\r\n0\r\n\r\n",
		"HTTP/1.1 103 Early\r\nLink: a\r\n\r\nHTTP/1.1 503 No\r\n\r\n\x00\xff",
		"HTTP/1.0 404\r\n\r\n", "SSH-2.0\r\n", "",
	} {
		f.Add([]byte(text), uint16(len(text)/2), false)
	}
	serving := grpcText([]byte("\x00\x00\x00\x00\x02\x08\x01"), "grpc-status", "0")
	f.Add(serving, uint16(20), true)
	f.Fuzz(func(t *testing.T, text []byte, split uint16, isGRPC bool) {
		fl := &flight{probe: probe{kind: HTTP}}
		if isGRPC {
			fl.kind = GRPC
		}
		h := newReader()
		whole, wholeErr := fl.answer(h, &prefixed{text, http.NoBody})
		if len(whole.output) > MaxOutputBytes {
			t.Fatalf("the output has %d bytes", len(whole.output))
		}
		at := min(int(split), len(text))
		out, err := fl.answer(h, &prefixed{text[:at], soFar{}})
		if errors.Is(err, errMore) {
			out, err = fl.answer(h, &prefixed{text[:at], bytes.NewReader(text[at:])})
		}
		if out != whole || (err == nil) != (wholeErr == nil) || err != nil && err.Error() != wholeErr.Error() {
			t.Errorf("split at %d it is %+v, %v, whole %+v, %v", at, out, err, whole, wholeErr)
		}
	})
}

func TestTheLogHasOneShortLineOfAnAnswer(t *testing.T) {
	page := "503 Service Unavailable\n<html>\n\t<body>" + strings.Repeat("é ", 2000) + "</body>"
	got := line(clip(page))
	if !strings.HasPrefix(got, "503 Service Unavailable <html> <body>é é") || strings.ContainsAny(got, "\n\t") || len([]rune(got)) != maxLineRunes+1 {
		t.Errorf("%d characters: %s", len([]rune(got)), got)
	}
	if got := line("200 OK\nfine"); got != "200 OK fine" {
		t.Errorf("%q", got)
	}
}
