package http1

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http/httpguts"
)

const good = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

// run feeds a stream in pieces of a size, as a Guard does, and returns what
// passed. Upgrades are taken for refused by the server.
func run(s *Scanner, stream []byte, piece int) (passed []byte, refusal *Refusal) {
	var held []byte
	for len(stream) > 0 && refusal == nil {
		n := min(piece, len(stream))
		held, stream = append(held, stream[:n]...), stream[n:]
		for {
			var pass int
			pass, refusal = s.Feed(held)
			passed, held = append(passed, held[:pass]...), held[pass:]
			if !s.Awaiting() {
				break
			}
			s.Resume()
		}
	}
	return passed, refusal
}

func post(headers, body string) string {
	return "POST /x HTTP/1.1\r\nHost: a\r\n" + headers + "\r\n" + body
}

func chunked(body string) string { return post("Transfer-Encoding: chunked\r\n", body) }

func TestWhatPasses(t *testing.T) {
	for name, stream := range map[string]string{
		"plain":              good,
		"pipelined":          good + good + post("Content-Length: 3\r\n", "abc") + good,
		"port":               "GET / HTTP/1.1\r\nHost: EXAMPLE.com.:8080\r\n\r\n",
		"IPv6":               "GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n",
		"absolute":           "GET http://b:80/x?y HTTP/1.1\r\nHost: a\r\n\r\n",
		"absolute, no path":  "GET http://b HTTP/1.1\r\nHost: a\r\n\r\n",
		"OPTIONS *":          "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
		"1.0":                "GET / HTTP/1.0\r\n\r\n",
		"1.0 with host":      "GET / HTTP/1.0\r\nHost: a\r\n\r\n",
		"1.0 with length":    "POST / HTTP/1.0\r\nContent-Length: 2\r\n\r\nab",
		"length 0":           post("Content-Length: 0\r\n", "") + good,
		"GET with body":      "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab" + good,
		"leading zeros":      post("Content-Length: 003\r\n", "abc") + good,
		"chunked":            chunked("3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n") + good,
		"CHUNKED":            post("transfer-encoding:CHUNKED\r\n", "0\r\n\r\n") + good,
		"extension":          chunked("3;chunk-signature=\"a b\"\r\nabc\r\n0;x\r\n\r\n") + good,
		"trailers":           chunked("3\r\nabc\r\n0\r\nX-Sum: 1\r\nY: \r\n\r\n") + good,
		"announced trailer":  post("Trailer: X-Sum, Y\r\nTransfer-Encoding: chunked\r\n", "0\r\nX-Sum: 1\r\n\r\n"),
		"body like a head":   post("Content-Length: 30\r\n", "\n\nGET / HTTP/1.1\nHost: a\nHost:b") + good,
		"empty value":        "GET / HTTP/1.1\r\nHost: a\r\nX:\r\nY: \t \r\n\r\n",
		"tab and Latin-1":    "GET / HTTP/1.1\r\nHost: a\r\nX: a\tb \xe9\xff\r\n\r\n",
		"odd query":          "GET /?q={\"a|b\"}^%zz HTTP/1.1\r\nHost: a\r\n\r\n",
		"websocket":          "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\r\n" + good,
		"websocket, length":  "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n",
		"odd method":         "PROPFIND / HTTP/1.1\r\nHost: a\r\n\r\n",
		"Upgrade-Insecure":   "GET / HTTP/1.1\r\nHost: a\r\nUpgrade-Insecure-Requests: 1\r\n\r\n",
		"Connection upgrade": "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\n\r\n",
		"many small chunks":  chunked(strings.Repeat("1\r\na\r\n", 5000) + "0\r\n\r\n"),
		"signed chunks":      chunked(strings.Repeat("400;chunk-signature="+strings.Repeat("f", 64)+"\r\n"+strings.Repeat("x", 1024)+"\r\n", 300) + "0\r\n\r\n"),
		"header at its end":  "GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 32<<10-len("GET / HTTP/1.1\r\nHost: a\r\nX: \r\n\r\n")) + "\r\n\r\n",
		"many fields":        "GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X: y\r\n", 255) + "\r\n",
	} {
		for _, piece := range []int{1, 7, 1 << 20} {
			if passed, r := run(NewScanner(Limits{}), []byte(stream), piece); r != nil || string(passed) != stream {
				t.Errorf("%s in pieces of %d: %d bytes of %d passed, %v", name, piece, len(passed), len(stream), r)
			}
		}
		if err := agrees([]byte(stream), true); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The rows B1 to B7 of what others got wrong, and more. None may pass, whatever
// the pieces it comes in; what is in front of it does.
func TestWhatIsRefused(t *testing.T) {
	head := func(s string) string { return "GET / HTTP/1.1\r\n" + s + "\r\n" }
	field := func(s string) string { return head("Host: a\r\n" + s + "\r\n") }
	ws := "Host: a\r\nUpgrade: websocket\r\n"
	for _, tt := range []struct {
		name, stream string
		status       int
		reason       string
	}{
		{"two hosts", head("Host: a\r\nHost: a\r\n"), 400, "two Host headers"},
		{"no host", head(""), 400, "no Host header"},
		{"empty host", head("Host:\r\n"), 400, "no valid host"},
		{"blank in host", head("Host: a b\r\n"), 400, "no valid host"},
		{"user in host", head("Host: u@a\r\n"), 400, "no valid host"},
		{"open bracket", head("Host: [::1\r\n"), 400, "no valid host"},
		{"no address", head("Host: [a]\r\n"), 400, "no valid host"},
		{"two ports", head("Host: a:1:2\r\n"), 400, "no valid host"},
		{"zone", head("Host: [fe80::1%25lo]\r\n"), 400, "no valid host"},
		{"Latin-1 host", head("Host: \xe9\r\n"), 400, "no valid host"},
		{"path in host", head("Host: a/b\r\n"), 400, "no valid host"},
		{"1.0, two hosts", "GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400, "two Host headers"},
		{"1.0, bad host", "GET / HTTP/1.0\r\nHost: \r\n\r\n", 400, "no valid host"},
		{"user in target", "GET http://u@b/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, "host in the target"},
		{"bracket in target", "GET http://[::1/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, "host in the target"},
		{"ports in target", "GET http://b:1:2/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, "host in the target"},
		{"no host in target", "GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n", 400, "host in the target"},
		{"other scheme", "GET ftp://b/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, "target"},
		{"relative target", "GET x HTTP/1.1\r\nHost: a\r\n\r\n", 400, "target"},
		{"authority target", "GET b:80 HTTP/1.1\r\nHost: a\r\n\r\n", 400, "target"},
		{"GET *", "GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400, "OPTIONS"},
		{"fragment", "GET /#/../admin HTTP/1.1\r\nHost: a\r\n\r\n", 400, "fragment"},
		{"broken escape", "GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", 400, "escape"},
		{"cut escape", "GET /%2 HTTP/1.1\r\nHost: a\r\n\r\n", 400, "escape"},
		{"UTF-8 target", "GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n", 400, "escaped"},
		{"NUL in target", "GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n", 400, "escaped"},
		{"double space", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400, "two spaces"},
		{"space behind", "GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400, "version"},
		{"tabs", "GET\t/\tHTTP/1.1\r\nHost: a\r\n\r\n", 400, "target"},
		{"0.9", "GET /\r\n\r\n", 400, "version"},
		{"lower case", "GET / http/1.1\r\nHost: a\r\n\r\n", 400, "version"},
		{"long version", "GET / HTTP/1.10\r\nHost: a\r\n\r\n", 400, "version"},
		{"version 1.2", "GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505, "version"},
		{"version 2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "version"},
		{"empty line first", "\r\n" + good, 400, "empty line"},
		{"blank first", " GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400, "method"},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00", 400, "TLS"},
		{"colon in method", "GE:T / HTTP/1.1\r\nHost: a\r\n\r\n", 400, "method"},
		{"CONNECT", "CONNECT b:80 HTTP/1.1\r\nHost: b:80\r\n\r\n", 501, "CONNECT"},
		{"TRACE", "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 501, "TRACE"},
		{"our own method", refusedMethod + " / HTTP/1.1\r\nHost: a\r\n\r\n", 501, "method"},

		{"LF", "GET / HTTP/1.1\nHost: a\r\n\r\n", 400, "LF without CR"},
		{"LF in a field", "GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n", 400, "LF without CR"},
		{"LF at the end", "GET / HTTP/1.1\r\nHost: a\r\n\n", 400, "LF without CR"},
		{"CR in a field", field("X: a\rb"), 400, "control byte"},
		{"CR CR LF", "GET / HTTP/1.1\r\nHost: a\r\nX: y\r\r\n\r\n", 400, "control byte"},
		{"NUL in a field", field("X: a\x00b"), 400, "control byte"},
		{"DEL in a field", field("X: 123456789\x7f"), 400, "control byte"},
		{"folded", field("X: a\r\n b"), 400, "folded"},
		{"folded first", "GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400, "folded"},
		{"space before colon", post("Content-Length : 5\r\n", "abcde"), 400, "blank"},
		{"tab before colon", post("Content-Length\t: 5\r\n", "abcde"), 400, "blank"},
		{"no colon", field("X"), 400, "colon"},
		{"useless LF", "GET / HTTP/1.1\r\nHost: a\r\nUseless:\n\nGET /x HTTP/1.1\r\n\r\n", 400, "LF without CR"},
		{"no name", field(": x"), 400, "without a name"},
		{"odd name", field("X(y): z"), 400, "token"},
		{"UTF-8 name", field("\xc3\xa9: z"), 400, "token"},
		{"VT before value", post("Transfer-Encoding: \x0bchunked\r\n", "0\r\n\r\n"), 400, "control byte"},

		{"CL twice", post("Content-Length: 3\r\nContent-Length: 3\r\n", "abc"), 400, "two Content-Length"},
		{"CL list", post("Content-Length: 3, 3\r\n", "abc"), 400, "no number"},
		{"CL +", post("Content-Length: +1\r\n", "a"), 400, "no number"},
		{"CL -", post("Content-Length: -1\r\n", "a"), 400, "no number"},
		{"CL hex", post("Content-Length: 0x1\r\n", "a"), 400, "no number"},
		{"CL _", post("Content-Length: 1_0\r\n", "a"), 400, "no number"},
		{"CL empty", post("Content-Length:\r\n", ""), 400, "empty"},
		{"CL 2^63", post("Content-Length: 9223372036854775808\r\n", "a"), 400, "range"},
		{"CL 2^64", post("Content-Length: 18446744073709551616\r\n", "a"), 400, "range"},
		{"CL that wraps", post("Content-Length: 21000000000000000000\r\n", "a"), 400, "range"},
		{"CL and TE", post("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), 400, "both"},
		{"TE and CL", post("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n", "0\r\n\r\n"), 400, "both"},
		{"TE 1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "1.0"},
		{"TE twice", post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), 400, "two Transfer-Encoding"},
		{"TE list", post("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"), 400, "other than chunked"},
		{"TE gzip", post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"), 400, "other than chunked"},
		{"TE identity", post("Transfer-Encoding: identity\r\n", ""), 400, "other than chunked"},
		{"TE empty", post("Transfer-Encoding:\r\n", ""), 400, "other than chunked"},
		{"TE quoted", post("Transfer-Encoding: \"chunked\"\r\n", "0\r\n\r\n"), 400, "other than chunked"},

		{"size LF", chunked("1\na\r\n0\r\n\r\n"), 400, "LF without CR"},
		{"extension LF", chunked("1;a\na\r\n0\r\n\r\n"), 400, "LF without CR"},
		{"extension CR", chunked("1;a\rb\r\na\r\n0\r\n\r\n"), 400, "control byte"},
		{"data LF", chunked("1\r\na\n0\r\n\r\n"), 400, "no CRLF"},
		{"data CR", chunked("1\r\na\r0\r\n\r\n"), 400, "no CRLF"},
		{"no end of data", chunked("1\r\naa\r\n0\r\n\r\n"), 400, "no CRLF"},
		{"last LF", chunked("0\n\n"), 400, "LF without CR"},
		{"last CRLF LF", chunked("0\r\n\n"), 400, "LF without CR"},
		{"no size", chunked("\r\n0\r\n\r\n"), 400, "without a size"},
		{"only an extension", chunked(";a\r\n0\r\n\r\n"), 400, "without a size"},
		{"blank before ;", chunked("1 ;x\r\na\r\n0\r\n\r\n"), 400, "hexadecimal"},
		{"blank behind", chunked("1 \r\na\r\n0\r\n\r\n"), 400, "hexadecimal"},
		{"blank first in size", chunked(" 1\r\na\r\n0\r\n\r\n"), 400, "hexadecimal"},
		{"0x", chunked("0x1\r\na\r\n0\r\n\r\n"), 400, "hexadecimal"},
		{"negative", chunked("-1\r\na\r\n0\r\n\r\n"), 400, "hexadecimal"},
		{"17 digits", chunked("00000000000000001\r\na\r\n0\r\n\r\n"), 400, "16 digits"},
		{"2^63", chunked("8000000000000000\r\na"), 400, "range"},
		{"long extension", chunked("1;" + strings.Repeat("x", 1<<20) + "\r\na\r\n0\r\n\r\n"), 400, "more than 512 bytes"},
		{"many extensions", chunked(strings.Repeat("1;"+strings.Repeat("x", 200)+"\r\na\r\n", 200)), 400, "more framing than data"},
		{"trailer LF", chunked("0\r\nX: y\n\r\n"), 400, "LF without CR"},
		{"trailer folded", chunked("0\r\n X: y\r\n\r\n"), 400, "folded"},
		{"trailer length", chunked("0\r\nContent-Length: 5\r\n\r\n"), 400, "trailer"},
		{"trailer host", chunked("0\r\nhost: b\r\n\r\n"), 400, "trailer"},
		{"long trailers", chunked("0\r\n" + strings.Repeat("X: y\r\n", 1000) + "\r\n"), 431, "trailers"},
		{"announced length", post("Trailer: X, Content-Length\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), 400, "Trailer"},

		{"unknown expectation", field("Expect: 200-ok"), 417, "100-continue"},
		{"h2c", field("Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA"), 501, "h2c"},
		{"settings", field("HTTP2-Settings: AAMAAABk"), 501, "HTTP2-Settings"},
		{"upgrade list", field("Connection: Upgrade\r\nUpgrade: websocket, h2c"), 501, "websocket"},
		{"upgrade TLS", field("Connection: Upgrade\r\nUpgrade: TLS/1.0"), 501, "websocket"},
		{"two upgrades", field("Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: websocket"), 400, "two Upgrade"},
		{"upgrade alone", head(ws), 400, "Connection"},
		{"upgrade by POST", "POST / HTTP/1.1\r\nConnection: upgrade\r\n" + ws + "\r\n", 400, "GET"},
		{"upgrade with body", head("Connection: upgrade\r\nContent-Length: 1\r\n" + ws), 400, "GET"},
		{"upgrade in 1.0", "GET / HTTP/1.0\r\nConnection: upgrade\r\n" + ws + "\r\n", 400, "1.0"},

		{"long target", "GET /" + strings.Repeat("x", 1<<20) + " HTTP/1.1\r\n", 414, "32768 bytes"},
		{"long header", field("X: " + strings.Repeat("x", 1<<20)), 431, "32768 bytes"},
		{"long in all", field(strings.Repeat("X: "+strings.Repeat("x", 200)+"\r\n", 200)), 431, "32768 bytes"},
		{"many fields", field(strings.Repeat("X: y\r\n", 300)), 431, "256 header fields"},
	} {
		for _, before := range []string{"", good, post("Content-Length: 3\r\n", "abc")} {
			want, _ := run(NewScanner(Limits{}), []byte(before+tt.stream), 1<<21)
			for _, piece := range []int{1, 7, 4096} {
				passed, r := run(NewScanner(Limits{}), []byte(before+tt.stream), piece)
				if r == nil {
					t.Errorf("%s passed in pieces of %d", tt.name, piece)
					continue
				}
				if r.Status != tt.status || !strings.Contains(r.Reason, tt.reason) {
					t.Errorf("%s: %v, want %d %s", tt.name, r, tt.status, tt.reason)
				}
				if !bytes.HasPrefix(passed, []byte(before)) || !bytes.Equal(passed, want) {
					t.Errorf("%s in pieces of %d: %d bytes passed, in one piece %d", tt.name, piece, len(passed), len(want))
				}
			}
		}
	}
}

func TestHTTP2PassesIfItIsOn(t *testing.T) {
	preface := "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	for _, piece := range []int{1, 1000} {
		if passed, r := run(NewScanner(Limits{H2C: true}), []byte(preface), piece); r != nil || string(passed) != preface {
			t.Errorf("%q passed, %v", passed, r)
		}
		if _, r := run(NewScanner(Limits{H2C: true}), []byte(good+preface), piece); r == nil {
			t.Error("HTTP/2 in the middle of HTTP/1 passed")
		}
	}
}

func TestNothingPassesBehindAnUpgrade(t *testing.T) {
	s := NewScanner(Limits{})
	upgrade := "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
	if pass, r := s.Feed([]byte(upgrade + "\x81\x85frame")); pass != len(upgrade) || r != nil || !s.Awaiting() {
		t.Errorf("%d of %d bytes passed, %v", pass, len(upgrade), r)
	}
	s.Resume()
	if _, r := s.Feed([]byte("\x81\x85frame")); r == nil {
		t.Error("a frame passed after the upgrade was refused")
	}
}

// agrees lets net/http read what passed, which must be the same requests with
// the same borders. whole says that no request is cut off.
func agrees(stream []byte, whole bool) error {
	s := NewScanner(Limits{})
	passed, _ := run(s, stream, 1<<30)
	source := bytes.NewReader(passed)
	br := bufio.NewReaderSize(source, 4096)
	var requests int64
	for {
		if _, err := br.Peek(1); err != nil {
			break
		}
		left := passed[len(passed)-br.Buffered():]
		if rest, ok := br.Buffered(), true; ok && rest == 4096 {
			left = nil // more than the buffer: the line below is taken from net/http
		}
		req, err := http.ReadRequest(br)
		if err != nil {
			return fmt.Errorf("net/http refuses request %d: %w", requests, err)
		}
		requests++
		if len(left) > 0 {
			line, _, _ := bytes.Cut(left, []byte("\r\n"))
			if want := req.Method + " " + req.RequestURI + " " + req.Proto; string(line) != want {
				return fmt.Errorf("request line %q is read as %q", line, want)
			}
		}
		if !httpguts.ValidHostHeader(req.Host) || req.ProtoAtLeast(1, 1) && req.Host == "" || len(req.Header["Host"]) > 0 {
			return fmt.Errorf("host %q", req.Host)
		}
		for k, vv := range req.Header {
			if !httpguts.ValidHeaderFieldName(k) {
				return fmt.Errorf("field %q", k)
			}
			for _, v := range vv {
				if !httpguts.ValidHeaderFieldValue(v) {
					return fmt.Errorf("field %q: %q", k, v)
				}
			}
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			if !whole && s.state != inHead && source.Len()+br.Buffered() == 0 {
				break // in the middle, where we stopped, or the client
			}
			return fmt.Errorf("net/http refuses the body of request %d: %w", requests, err)
		}
	}
	if requests != s.requests {
		return fmt.Errorf("net/http reads %d requests, the scanner %d", requests, s.requests)
	}
	return nil
}

// Never looser than net/http, and the same however the bytes come.
func FuzzScanner(f *testing.F) {
	for _, s := range []string{
		good, good + good, chunked("3;x=y\r\nabc\r\n0\r\nX: y\r\n\r\n") + good, post("Content-Length: 3\r\n", "abc") + good,
		"GET http://b:80/x HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS * HTTP/1.0\r\n\r\n", "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n" + good,
		post("Trailer: X\r\nTransfer-Encoding: chunked\r\n", "ffffffffff\r\n"), "GET //x HTTP/1.1\r\nHost: [::1]\r\nExpect: 100-continue\r\n\r\n",
	} {
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, stream []byte, piece uint8) {
		passed, r := run(NewScanner(Limits{}), stream, 1<<30)
		again, r2 := run(NewScanner(Limits{}), stream, 1+int(piece))
		if !bytes.Equal(passed, again) || (r == nil) != (r2 == nil) || r != nil && *r != *r2 {
			t.Fatalf("whole: %q, %v\npieces of %d: %q, %v", passed, r, 1+int(piece), again, r2)
		}
		if !bytes.HasPrefix(stream, passed) {
			t.Fatalf("%q became %q", stream, passed)
		}
		if err := agrees(stream, false); err != nil {
			t.Fatal(err)
		}
	})
}

func TestIsText(t *testing.T) {
	for at := range 20 {
		for c := range 256 {
			b := bytes.Repeat([]byte{0xff, ' ', 'a', 0x80}, 5)
			b[at] = byte(c)
			if got, want := isText(b), c == '\t' || c >= ' ' && c != 0x7f; got != want {
				t.Fatalf("byte 0x%02x at %d: %v", c, at, got)
			}
		}
	}
}

const browser = "GET /some/path?with=query HTTP/1.1\r\nHost: web.default.mesh.internal\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101\r\nAccept: text/html,application/xhtml+xml\r\nAccept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\nCookie: session=0123456789abcdef\r\n\r\n"

func TestScannerDoesNotAllocate(t *testing.T) {
	for _, stream := range []string{browser, chunked("3\r\nabc\r\n0\r\n\r\n")} {
		s := NewScanner(Limits{})
		data := []byte(stream)
		if n := testing.AllocsPerRun(100, func() {
			if pass, r := s.Feed(data); pass != len(data) || r != nil {
				t.Fatal(pass, r)
			}
		}); n != 0 {
			t.Errorf("%v allocations for %q", n, stream)
		}
	}
}

func BenchmarkScanner(b *testing.B) {
	for name, stream := range map[string]string{"small": "GET /1k HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nUser-Agent: wrk\r\n\r\n", "browser": browser} {
		b.Run(name, func(b *testing.B) {
			s := NewScanner(Limits{})
			data := []byte(stream)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if pass, _ := s.Feed(data); pass != len(data) {
					b.Fatal(pass)
				}
			}
		})
	}
}
