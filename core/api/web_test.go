package api_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/fairlead/fairlead/core/api"
	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/core/api/etcd"
	"github.com/fairlead/fairlead/core/api/etcd/etcdtest"
	"github.com/fairlead/fairlead/test/certs"
)

// ask makes one request of HTTP/1.1 on a connection of its own.
func ask(t *testing.T, conn net.Conn, request string) (code int, body string) {
	t.Helper()
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(request, " ")
	r, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

func dialRaw(t *testing.T, target string) net.Conn {
	t.Helper()
	network, address := client.Address(target)
	conn, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// What checks ask of etcd is answered beside gRPC, and nothing else is.
func TestHTTPBesideGRPC(t *testing.T) {
	t.Parallel()
	front := etcd.NewFront("not yet")
	server := storeServer(t, front)
	for _, access := range []api.Access{api.AccessAll, api.AccessRead} {
		front.Unset("not yet")
		target := listenOn(t, server, access)
		check := func(request string, code int, body string) {
			t.Helper()
			if c, b := ask(t, dialRaw(t, target), request+" HTTP/1.1\r\nHost: x\r\n\r\n"); c != code || !strings.Contains(b, body) {
				t.Errorf("%s: %d %q, want %d with %q", request, c, b, code, body)
			}
		}
		check("GET /version", 200, `{"etcdserver":"3.`)
		check("GET /health", 503, `{"health":"false","reason":"no store answers here: not yet"}`)
		front.Set(etcdtest.Open(t, 1).API)
		check("GET /health", 200, `{"health":"true","reason":""}`)
		check("HEAD /health", 200, "")
		check("GET /metrics", 404, "")
		check("POST /health", 405, "")
		check("POST /v3/kv/range", 404, "")
		if _, err := pb.NewKVClient(dial(t, target)).Range(t.Context(), &pb.RangeRequest{Key: []byte("k")}); err != nil {
			t.Errorf("a call beside them: %v", err)
		}
	}
}

// Under TLS it is answered to clients that offer no HTTP/2, and to none without
// the certificate that is demanded.
func TestHTTPBesideGRPCUnderTLS(t *testing.T) {
	t.Parallel()
	servers, clients := certs.New(t), certs.New(t)
	w := newTLSWorld(t, servers, clients)
	config := servers.Client(clients.Issue("c", time.Now().Add(time.Hour)))
	if err := w.call(config); err != nil {
		t.Error(err)
	}
	dialTLS := func(c *tls.Config) *tls.Conn {
		c = c.Clone()
		c.NextProtos = []string{"http/1.1"}
		conn, err := tls.Dial("tcp", w.address, c)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	const request = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
	if code, body := ask(t, dialTLS(config), request); code != 200 || !strings.Contains(body, `"true"`) {
		t.Errorf("%d %q", code, body)
	}
	stranger := dialTLS(servers.Client(nil, nil))
	defer stranger.Close()
	_, _ = io.WriteString(stranger, request)
	if b, err := io.ReadAll(stranger); err == nil || len(b) > 0 {
		t.Errorf("a client without a certificate: %q, %v", b, err)
	}
}

// Who begins and goes no further is not waited for without end, however far it
// came.
func TestHTTPBesideGRPCIsBounded(t *testing.T) {
	t.Parallel()
	server := storeServer(t, etcd.NewFront("none"))
	target := listenOn(t, server, api.AccessRead)
	for _, begin := range []string{"", "GE", "GET ", "GET /health HTTP/1.1\r\nHost: x\r\n", "GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"} {
		t.Run(fmt.Sprintf("%d bytes", len(begin)), func(t *testing.T) {
			t.Parallel()
			conn := dialRaw(t, target)
			defer conn.Close()
			_, _ = io.WriteString(conn, begin)
			_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := io.ReadAll(conn); err != nil && strings.Contains(err.Error(), "timeout") {
				t.Error("the connection stays")
			}
		})
	}
}

// A connection ends with its answer: nothing waits for further requests.
func TestHTTPBesideGRPCKeepsNoConnection(t *testing.T) {
	t.Parallel()
	target := listenOn(t, storeServer(t, etcd.NewFront("none")), api.AccessRead)
	for _, path := range []string{"/version", "/none"} {
		conn := dialRaw(t, target)
		defer conn.Close()
		_, _ = io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		if answer, err := io.ReadAll(conn); err != nil || !strings.Contains(string(answer), "Connection: close") {
			t.Errorf("%s: %q, %v", path, answer, err)
		}
	}
}

// A request that does not end does not hold up a stop.
func TestHTTPBesideGRPCStops(t *testing.T) {
	t.Parallel()
	server := storeServer(t, etcd.NewFront("none"))
	conn := dialRaw(t, listenOn(t, server, api.AccessRead))
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET /version HTTP/1.1\r\n")
	stopNow(server)
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.ReadAll(conn); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Error("it goes on")
	}
}
