package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// echoHead is a backend whose answer's body is the head that it got.
func echoHead(t testing.TB) string {
	return raw(t, func(c *net.TCPConn, r *bufio.Reader) {
		for {
			head, err := readHead(r)
			if err != nil {
				return
			}
			answer := http.Response{
				StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(len(head)),
				Body: io.NopCloser(strings.NewReader(head)),
			}
			if answer.Write(c) != nil {
				return
			}
		}
	})
}

// fields parses a head into the values under each name, in lower case.
func fields(head string) map[string][]string {
	out := map[string][]string{}
	for i, line := range strings.Split(strings.TrimSuffix(head, "\r\n\r\n"), "\r\n") {
		if name, value, ok := strings.Cut(line, ": "); ok && i > 0 {
			out[strings.ToLower(name)] = append(out[strings.ToLower(name)], value)
		}
	}
	return out
}

// ownHeaders are those that the proxy writes.
func ownHeaders() []string {
	return []string{"x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "x-request-id", "x-fairlead-hops", "host"}
}

// C1: what the proxy says cannot be named away, in any case, in any field.
func TestConnectionCannotNameAwayWhatTheProxySays(t *testing.T) {
	w := newWorld(t, nil, echoHead(t))
	for _, own := range ownHeaders() {
		for _, field := range []string{
			"Connection: " + own + "\r\n",
			"Connection: keep-alive, " + strings.ToUpper(own) + "\r\n",
			"Connection:\r\nconnection: x,\t" + http.CanonicalHeaderKey(own) + " ,\r\n",
		} {
			_, head := w.get("/", field)
			if got := fields(head)[own]; len(got) != 1 || got[0] == "" {
				t.Errorf("%q: %s is %q", field, own, got)
			}
		}
	}
}

// C2 and RFC 9110 section 7.6.1: what concerns one connection stays there.
func TestHopByHopHeadersAreLeftOut(t *testing.T) {
	w := newWorld(t, nil, echoHead(t))
	_, head := w.get("/", "Connection:\r\nConnection: X-Secret, Other\r\nX-Secret: 1\r\nOther: 1\r\nKeep-Alive: 5\r\nProxy-Connection: x\r\n"+
		"Proxy-Authorization: x\r\nTe: gzip, trailers\r\nTrailer: X\r\nX-Stays: 1\r\n")
	got := fields(head)
	if got["host"] == nil {
		t.Fatal(head)
	}
	for _, name := range []string{"connection", "x-secret", "other", "keep-alive", "proxy-connection", "proxy-authorization", "trailer"} {
		if got[name] != nil {
			t.Errorf("%s was passed on: %q", name, got[name])
		}
	}
	if got["x-stays"] == nil || !slices.Equal(got["te"], []string{"trailers"}) {
		t.Errorf("X-Stays %q, TE %q", got["x-stays"], got["te"])
	}
}

// C3: CGI and its heirs read X_Forwarded_For as X-Forwarded-For.
func TestAliasesOfManagedHeadersAreLeftOut(t *testing.T) {
	w := newWorld(t, nil, echoHead(t))
	for _, name := range []string{"X_Forwarded_For", "x_forwarded-host", "X.Forwarded.Proto", "Content_Length", "Transfer.Encoding", "X_Real_Ip", "x-forwarded_user"} {
		_, head := w.get("/", name+": 6.6.6.6\r\n")
		if strings.Contains(head, "6.6.6.6") {
			t.Errorf("%s was passed on:\n%s", name, head)
		}
	}
	if _, head := w.get("/", "My_Own.Header: 6.6.6.6\r\n"); !strings.Contains(head, "6.6.6.6") {
		t.Errorf("a header of the application was lost:\n%s", head)
	}
}

// C5: the word of a peer that is not trusted is replaced, that of one that is
// stands.
func TestForwardedHeaders(t *testing.T) {
	const said = "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 7.7.7.7\r\nX-Forwarded-Host: evil\r\nX-Forwarded-Proto: https\r\n" +
		"X-Forwarded-Port: 666\r\nForwarded: for=6.6.6.6\r\nX-Real-Ip: 6.6.6.6\r\n"
	type want map[string][]string
	for name, c := range map[string]struct {
		trusted []netip.Prefix
		want    want
	}{
		"untrusted": {nil, want{
			"x-forwarded-for": {"127.0.0.1"}, "x-forwarded-host": {"web"}, "x-forwarded-proto": {"http"},
			"x-forwarded-port": nil, "forwarded": nil, "x-real-ip": {"127.0.0.1"},
		}},
		"trusted": {[]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, want{
			"x-forwarded-for": {"6.6.6.6, 7.7.7.7, 127.0.0.1"}, "x-forwarded-host": {"evil"}, "x-forwarded-proto": {"https"},
			"x-forwarded-port": {"666"}, "forwarded": {"for=6.6.6.6", "for=127.0.0.1;proto=http"}, "x-real-ip": {"6.6.6.6"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(o *options) { o.trusted = c.trusted }, echoHead(t))
			_, head := w.get("/", said)
			got := fields(head)
			for field, value := range c.want {
				if !slices.Equal(got[field], value) {
					t.Errorf("%s: %q, want %q", field, got[field], value)
				}
			}
		})
	}
}

func TestHostAndTargetOfAbsoluteForm(t *testing.T) {
	w := newWorld(t, nil, echoHead(t))
	_, head := w.ask("GET", "GET http://web/x%2Fy?a=b HTTP/1.1\r\nHost: other\r\n\r\n")
	if !strings.HasPrefix(head, "GET /x%2Fy?a=b HTTP/1.1\r\n") || !slices.Equal(fields(head)["host"], []string{"web"}) {
		t.Errorf("sent on as\n%s", head)
	}
}

func TestRequestID(t *testing.T) {
	w := newWorld(t, nil, echoHead(t))
	for _, c := range []struct{ said, want string }{
		{"X-Request-Id: abc-1\r\n", "abc-1"},
		{"", ""},
		{"X-Request-Id: a\r\nX-Request-Id: b\r\n", ""},
		{"X-Request-Id: " + strings.Repeat("x", 129) + "\r\n", ""},
		{"X-Request-Id: a b\r\n", ""},
	} {
		_, head := w.get("/", c.said)
		got := fields(head)["x-request-id"]
		if len(got) != 1 || c.want != "" && got[0] != c.want || c.want == "" && len(got[0]) != 32 {
			t.Errorf("%q became %q", c.said, got)
		}
	}
}

func TestLoop(t *testing.T) {
	w := newWorld(t, nil)
	w.serve("web", w.addr) // itself
	answer, body := w.get("/", "")
	expect(t, answer, http.StatusLoopDetected, ReasonLoop)
	if !strings.Contains(body, "circle") {
		t.Errorf("%q", body)
	}
	if n := w.metric("fairlead_l7_requests_total", "service", "default/web"); n != mostHops {
		t.Errorf("went through the proxy %v times", n)
	}
}

func TestOnlyHeadersOfTheAnswerThatConcernTheClient(t *testing.T) {
	for _, connection := range []string{"Connection: X-Hop", "Connection: close, X-Hop", "connection: close\r\nConnection: keep-alive ,x-hop"} {
		w := newWorld(t, nil, says(t, "HTTP/1.1 200 OK\r\n"+connection+"\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nUpgrade: h2c\r\nProxy-Authenticate: x\r\nX-Stays: 1\r\nContent-Length: 2\r\n\r\nok", false))
		answer, body := w.get("/", "")
		for _, name := range []string{"X-Hop", "Keep-Alive", "Upgrade", "Proxy-Authenticate", "Connection", "Content-Type"} {
			if answer.Header[name] != nil {
				t.Errorf("%q: %s: %q", connection, name, answer.Header[name])
			}
		}
		if answer.Header.Get("X-Stays") != "1" || body != "ok" {
			t.Errorf("%q: %v %q", connection, answer.Header, body)
		}
	}
}

func TestMethodsAndUpgradesThatAreRefused(t *testing.T) {
	w := newWorld(t, nil, echoHead(t))
	answer, _ := w.ask("CONNECT", "CONNECT web:80 HTTP/1.1\r\nHost: web\r\n\r\n")
	if answer.StatusCode != http.StatusNotImplemented {
		t.Errorf("CONNECT: %d", answer.StatusCode)
	}
	answer, _ = w.ask("TRACE", "TRACE / HTTP/1.1\r\nHost: web\r\n\r\n")
	if answer.StatusCode != http.StatusMethodNotAllowed && answer.StatusCode != http.StatusNotImplemented {
		t.Errorf("TRACE: %d", answer.StatusCode)
	}
	// B10: no tunnel past all checks.
	answer, body := w.get("/", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n")
	if answer.StatusCode != http.StatusNotImplemented || !strings.Contains(body, "h2c") || answer.Header.Get(headerReason) == "" {
		t.Errorf("Upgrade: h2c: %d %q, %v", answer.StatusCode, body, answer.Header)
	}
}
