package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

// TestL7BadInput: whatever a client or a backend sends, it is refused once and
// clearly, and the next request on a new connection is answered.
func TestL7BadInput(t *testing.T) {
	t.Parallel()
	cluster := newWebs(t, 1)
	one := cluster.hosts[0]
	one.settings["first_byte_timeout"] = "3s" // a machine may stand still for a second or two
	backends := map[string]string{
		"status":   "HTTP/1.1 abc OK\r\nContent-Length: 2\r\n\r\nok",
		"short":    "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nonly this",
		"long":     "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison",
		"lengths":  "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
		"endless":  "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-More: "+strings.Repeat("y", 1000)+"\r\n", 1000),
		"unending": "HTTP/1.1 200 OK\r\nX-And: then nothing",
	}
	port := instancePort
	for name, answer := range backends {
		port++
		one.answersWith(port, answer)
		one.services = append(one.services, object{"name": name, "port": 80, "instances": []object{{"id": name, "address": one.url(port)}}})
	}
	cluster.start()
	works := func(t *testing.T) {
		t.Helper()
		if err := one.reaches("n1")(); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	}

	for _, c := range []struct {
		name, request string
		status        int
		says          string // in the answer's body
	}{
		{"two hosts", "GET / HTTP/1.1\r\nHost: web\r\nHost: api\r\n\r\n", 400, "Host"},
		{"no host", "GET / HTTP/1.1\r\n\r\n", 400, "Host"},
		{"length and chunks", "POST / HTTP/1.1\r\nHost: web\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "Transfer-Encoding"},
		{"bare LF", "GET / HTTP/1.1\nHost: web\n\n", 400, "line"},
		{"bare LF in a header", "GET / HTTP/1.1\r\nHost: web\nX-A: b\r\n\r\n", 400, "line"},
		{"1 MiB header", "GET / HTTP/1.1\r\nHost: web\r\nX-Big: " + strings.Repeat("a", 1<<20) + "\r\n\r\n", 431, "head"},
		{"h2c", "GET / HTTP/1.1\r\nHost: web\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n\r\n", 501, "h2c"},
		{"CONNECT", "CONNECT web:80 HTTP/1.1\r\nHost: web:80\r\n\r\n", 501, "CONNECT"},
		{"unknown host", "GET / HTTP/1.1\r\nHost: nowhere\r\n\r\n", 404, `"nowhere"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := newHTTPConn(one.node, one.url(proxyPort))
			defer conn.close()
			if err := conn.open(patience); err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = io.WriteString(conn.conn, c.request) }() // it may refuse before the end
			method, _, _ := strings.Cut(c.request, " ")
			r, err := http.ReadResponse(conn.reader, &http.Request{Method: method})
			if err != nil {
				t.Fatal(err)
			}
			body, _ := readAll(r.Body) // a reset may follow the refusal of what was not read
			if r.StatusCode != c.status || !strings.Contains(body, c.says) || strings.Count(strings.TrimSpace(body), "\n") > 0 {
				t.Errorf("%d %q, want %d and one line with %s", r.StatusCode, body, c.status, c.says)
			}
			works(t)
		})
	}

	for name, want := range map[string]string{
		"status": "502 bad-response", "lengths": "502 bad-response", "endless": "502 bad-response", "unending": "504 head-timeout",
		"short": "broken off", "long": "200 ok",
	} {
		t.Run("backend "+name, func(t *testing.T) {
			for range 3 { // the second must not be told what the first left behind
				c := newHTTPConn(one.node, one.url(proxyPort))
				code, body, err := c.do("GET / HTTP/1.1\r\nHost: "+name+"\r\n\r\n", patience)
				c.close()
				got := fmt.Sprintf("%d %s", code, body)
				if errors.Is(err, io.ErrUnexpectedEOF) {
					got = "broken off"
				} else if err != nil {
					got = err.Error()
				}
				if !strings.HasPrefix(got, want) {
					t.Errorf("got %s, want %s", got, want)
				}
			}
			works(t)
		})
	}
}

// answersWith answers each request at a port of the node with these bytes.
func (a *agent) answersWith(port int, answer string) {
	a.t.Helper()
	l, err := a.node.Listen("tcp", netip.AddrPortFrom(a.node.Addr(), uint16(port)).String())
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go answerOn(c, answer)
		}
	}()
}

func answerOn(c net.Conn, answer string) {
	defer c.Close()
	reader := bufio.NewReader(c)
	for {
		if _, err := http.ReadRequest(reader); err != nil {
			return
		}
		if _, err := io.WriteString(c, answer); err != nil {
			return
		}
		if strings.Contains(answer, "only this") {
			return // it ends before what it announced
		}
	}
}
