package api_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/core/api"
	"github.com/fairlead/fairlead/core/api/etcd"
	"github.com/fairlead/fairlead/core/api/etcd/etcdtest"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/certs"
)

// logged is a log that tests read.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

// tlsWorld is a listener with TLS on files.
type tlsWorld struct {
	t                   *testing.T
	cert, key, clientCA string
	address             string
	log                 logged
}

func newTLSWorld(t *testing.T, servers, clients *certs.Authority) *tlsWorld {
	t.Helper()
	dir := t.TempDir()
	w := &tlsWorld{t: t, cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem")}
	w.renew(servers.Issue("first", time.Now().Add(time.Hour)))
	if clients != nil {
		w.clientCA = filepath.Join(dir, "ca.pem")
		certs.Write(w.t, w.clientCA, clients.PEM)
	}
	log := slog.New(slog.NewTextHandler(&w.log, nil))
	config, err := api.TLSConfig(w.cert, w.key, w.clientCA, log)
	if err != nil {
		t.Fatal(err)
	}
	s := etcdtest.Open(t, 1)
	front := etcd.NewFront("")
	front.Set(s.API)
	f := &fake{events: twoEvents}
	server := api.NewServer(api.Backend{Identity: f, Members: f, Events: f, Leaver: f, Settings: f, Store: front}, log)
	t.Cleanup(func() { stopNow(server) })
	l, err := api.ListenTCP("api.listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server.ServeTLS(l, api.AccessRead, config)
	w.address = l.Addr().String()
	return w
}

func (w *tlsWorld) renew(cert, key []byte) {
	w.t.Helper()
	certs.Write(w.t, w.cert, cert)
	certs.Write(w.t, w.key, key)
}

// call makes one call on a connection of its own; c nil is plaintext.
func (w *tlsWorld) call(c *tls.Config) error {
	w.t.Helper()
	creds := insecure.NewCredentials()
	if c != nil {
		creds = credentials.NewTLS(c)
	}
	conn, err := grpc.NewClient("passthrough:///"+w.address, grpc.WithTransportCredentials(creds))
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	_, err = pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: []byte("k")})
	return err
}

// shown returns the name on the certificate that the listener shows now.
func (w *tlsWorld) shown(roots *x509.CertPool) string {
	w.t.Helper()
	c, err := tls.Dial("tcp", w.address, &tls.Config{RootCAs: roots, NextProtos: []string{"h2"}})
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].Subject.CommonName
}

func (w *tlsWorld) refused(err error) {
	w.t.Helper()
	if status.Code(err) != codes.Unavailable {
		w.t.Errorf("got %v, want a connection that fails", err)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	servers, others := certs.New(t), certs.New(t)
	w := newTLSWorld(t, servers, nil)
	if err := w.call(servers.Client(nil, nil)); err != nil {
		t.Errorf("%v", err)
	}
	if err := w.call(&tls.Config{RootCAs: servers.Pool(), MaxVersion: tls.VersionTLS12}); err != nil {
		t.Errorf("TLS 1.2: %v", err)
	}
	w.refused(w.call(&tls.Config{RootCAs: servers.Pool(), MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}))
	w.refused(w.call(others.Client(nil, nil)))
	w.refused(w.call(nil))
	if n := w.log.count("TLS handshake failed"); n != 1 {
		t.Errorf("%d refused connections were logged, want one in a while", n)
	}
}

// With an authority for clients, they have to show a certificate of it that is
// valid.
func TestTLSOfClients(t *testing.T) {
	t.Parallel()
	servers, clients, others := certs.New(t), certs.New(t), certs.New(t)
	w := newTLSWorld(t, servers, clients)
	soon := time.Now().Add(time.Hour)
	cert, key := clients.Issue("c", soon)
	if err := w.call(servers.Client(cert, key)); err != nil {
		t.Errorf("%v", err)
	}
	w.refused(w.call(servers.Client(nil, nil)))
	cert, key = others.Issue("c", soon)
	w.refused(w.call(servers.Client(cert, key)))
	cert, key = clients.Issue("c", time.Now().Add(-time.Hour))
	w.refused(w.call(servers.Client(cert, key)))
	// Another authority, from now on.
	certs.Write(w.t, w.clientCA, others.PEM)
	cert, key = others.Issue("c", soon)
	await.Within(t, time.Minute, "the new authority", func() bool { return w.call(servers.Client(cert, key)) == nil })
}

// A renewed certificate is shown to whoever comes then; a broken one is not.
func TestTLSRenewal(t *testing.T) {
	t.Parallel()
	servers := certs.New(t)
	w := newTLSWorld(t, servers, nil)
	if got := w.shown(servers.Pool()); got != "first" {
		t.Fatalf("the listener shows %q", got)
	}
	cert, key := servers.Issue("second", time.Now().Add(time.Hour))
	certs.Write(w.t, w.cert, cert) // the key comes later, as in real life
	await.Within(t, time.Minute, "the log of a certificate without its key", func() bool {
		if got := w.shown(servers.Pool()); got != "first" {
			t.Fatalf("the listener shows %q", got)
		}
		return w.log.count("cannot be used") > 0
	})
	certs.Write(w.t, w.key, key)
	await.Within(t, time.Minute, "the second certificate", func() bool { return w.shown(servers.Pool()) == "second" })

	w.renew(servers.Issue("late", time.Now().Add(-time.Hour)))
	await.Within(t, time.Minute, "the log of a certificate that ran out", func() bool {
		if got := w.shown(servers.Pool()); got != "second" {
			t.Fatalf("the listener shows %q", got)
		}
		return w.log.count("ran out") > 0
	})
	if n := w.log.count("cannot be used"); n > 4 {
		t.Errorf("logged %d times", n)
	}
}

func TestTLSFilesThatCannotBeUsed(t *testing.T) {
	a := certs.New(t)
	dir := t.TempDir()
	cert, key := a.Issue("n", time.Now().Add(time.Hour))
	_, otherKey := a.Issue("n", time.Now().Add(time.Hour))
	path := func(name string, data []byte) string {
		p := filepath.Join(dir, name)
		certs.Write(t, p, data)
		return p
	}
	certFile, keyFile, otherFile, junk := path("cert", cert), path("key", key), path("other", otherKey), path("junk", []byte("junk"))
	for _, c := range []struct{ cert, key, ca, want string }{
		{filepath.Join(dir, "none"), keyFile, "", "api.tls.cert: open " + filepath.Join(dir, "none")},
		{certFile, "", "", "api.tls.key is not set"},
		{"", keyFile, "", "api.tls.cert is not set"},
		{certFile, otherFile, "", "api.tls.key " + otherFile},
		{junk, keyFile, "", "api.tls.cert " + junk},
		{certFile, keyFile, junk, "api.tls.client_ca " + junk},
		{certFile, keyFile, filepath.Join(dir, "none"), "api.tls.client_ca: open"},
	} {
		if _, err := api.TLSConfig(c.cert, c.key, c.ca, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
	// A certificate that ran out is said, and served: an agent has more to do than this.
	lateCert, lateKey := a.Issue("late", time.Now().Add(-time.Hour))
	var log logged
	if _, err := api.TLSConfig(path("late", lateCert), path("latekey", lateKey), "", slog.New(slog.NewTextHandler(&log, nil))); err != nil || log.count("ran out at") != 1 {
		t.Errorf("%v; %s", err, log.b.String())
	}
}

// Who says nothing does not hold a slot for long, and there are only so many.
func TestTLSHandshakesAreBounded(t *testing.T) {
	t.Parallel()
	servers := certs.New(t)
	w := newTLSWorld(t, servers, nil)
	silent, err := net.Dial("tcp", w.address)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	begun := time.Now()
	if err := silent.SetReadDeadline(begun.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := silent.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("a silent connection: %v", err)
	}
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("it was closed after %v", took)
	}
	if err := w.call(servers.Client(nil, nil)); err != nil {
		t.Errorf("%v", err)
	}
}
