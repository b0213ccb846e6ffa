package client

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/fairlead/fairlead/core/api/fairleadv1"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/certs"
)

func TestAddress(t *testing.T) {
	for target, want := range map[string][2]string{
		"/run/fairlead/api.sock":  {"unix", "/run/fairlead/api.sock"},
		"api.sock":                {"unix", "api.sock"},
		"./a:b":                   {"unix", "./a:b"},
		"127.0.0.1:7402":          {"tcp", "127.0.0.1:7402"},
		"[::1]:7402":              {"tcp", "[::1]:7402"},
		"host:7402":               {"tcp", "host:7402"},
		"http://127.0.0.1:7402":   {"tcp", "127.0.0.1:7402"},
		"https://127.0.0.1:7402":  {"tcp", "127.0.0.1:7402"},
		"https://127.0.0.1:7402/": {"tcp", "127.0.0.1:7402"},
	} {
		if network, address := Address(target); network != want[0] || address != want[1] {
			t.Errorf("Address(%q) is %s %s, want %s", target, network, address, want)
		}
	}
}

func answers(server *grpc.Server) { fairleadv1.RegisterAgentServer(server, &scripted{}) }

// serveTLS answers for servers, and asks for certificates of clients unless that is nil.
func serveTLS(t *testing.T, servers, clients *certs.Authority) (address string) {
	t.Helper()
	pair, err := tls.X509KeyPair(servers.Issue("server", time.Now().Add(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}}
	if clients != nil {
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, clients.Pool()
	}
	return serve(t, grpc.NewServer(grpc.Creds(credentials.NewTLS(config))), answers)
}

// ask dials, makes a call, dials again and makes another.
func ask(t *testing.T, target string, options ...Option) error {
	t.Helper()
	patient := func(l *line) { l.patience = await.Patience }
	c, err := Dial(t.Context(), target, append([]Option{patient}, options...)...)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Status(t.Context()); err != nil {
		return err
	}
	again, err := c.Redial(t.Context())
	if err != nil {
		return err
	}
	defer again.Close()
	_, err = again.Status(t.Context())
	return err
}

func TestTLS(t *testing.T) {
	servers, clients := certs.New(t), certs.New(t)
	open, closed, plain := serveTLS(t, servers, nil), serveTLS(t, servers, clients), serve(t, grpc.NewServer(), answers)
	cert, key := clients.Issue("client", time.Now().Add(time.Hour))
	with := func(c *tls.Config) []Option { return []Option{WithTLS(c)} }
	old := servers.Client(nil, nil)
	old.MaxVersion = tls.VersionTLS12 // the server refuses within the handshake
	for name, c := range map[string]struct {
		target  string
		options []Option
		want    string // empty: it works
	}{
		"https":                           {"https://" + open, with(servers.Client(nil, nil)), ""},
		"host:port with an authority":     {open, with(servers.Client(nil, nil)), ""},
		"with a certificate":              {"https://" + closed, with(servers.Client(cert, key)), ""},
		"http whatever is trusted":        {"http://" + plain, with(servers.Client(nil, nil)), ""},
		"without TLS to TLS":              {open, nil, "under TLS there; name it https://" + open},
		"with TLS to none":                {"https://" + plain, nil, "without api.tls an agent is named HOST:PORT"},
		"the system's authorities":        {"https://" + open, nil, "--api-cacert"},
		"another authority":               {"https://" + open, with(clients.Client(nil, nil)), "--api-cacert"},
		"another name":                    {"https://localhost:" + open[strings.LastIndex(open, ":")+1:], with(servers.Client(nil, nil)), "--api-cacert"},
		"without the certificate":         {"https://" + closed, with(servers.Client(nil, nil)), "--api-cert"},
		"without the certificate, at 1.2": {"https://" + closed, with(old), "--api-cert"},
	} {
		err := ask(t, c.target, c.options...)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (!errors.Is(err, ErrTLS) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got %v, want a TLS error with %q", name, err, c.want)
		}
	}
	if err := ask(t, "https://127.0.0.1:1"); !errors.Is(err, ErrNoAgent) {
		t.Errorf("nobody there: %v", err)
	}
	var unknown x509.UnknownAuthorityError
	if err := ask(t, "https://"+open); !errors.As(err, &unknown) {
		t.Errorf("the reason is lost: %v", err)
	}
}
