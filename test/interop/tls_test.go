package interop

import (
	"crypto/tls"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/fairlead/fairlead/test/certs"
)

// TestTLS serves clients that show a certificate, and no others.
func TestTLS(t *testing.T) {
	ca, other := certs.New(t), certs.New(t)
	server, client, stranger := ca.Files("server"), ca.Files("client"), other.Files("client")
	c := own(t, func(dir string) (*cluster, error) {
		a, err := newAgent(dir, "n1", "--api.tls.cert", server.Cert, "--api.tls.key", server.Key, "--api.tls.client_ca", ca.File)
		if err != nil {
			return nil, err
		}
		return startAll(a)
	})
	plain := c.agents[0].api
	endpoint := "https://" + plain
	by := func(trusts *certs.Authority, shows certs.Pair) []string {
		return []string{"--cacert", trusts.File, "--cert", shows.Cert, "--key", shows.Key}
	}
	cases := map[string]struct {
		endpoint string
		args     []string
		want     string
	}{
		"with a certificate":        {endpoint, append(by(ca, client), "put", "x", "1"), "OK\n"},
		"members":                   {endpoint, append(by(ca, client), "member", "list"), ", " + endpoint + ", false\n"},
		"with one of somebody else": {endpoint, append(by(ca, stranger), "--command-timeout=2s", "put", "x", "2"), "exit status 1\n"},
		"trusting somebody else":    {endpoint, append(by(other, client), "--command-timeout=2s", "put", "x", "3"), "exit status 1\n"},
		"without a certificate":     {endpoint, []string{"--cacert", ca.File, "--command-timeout=2s", "put", "x", "4"}, "exit status 1\n"},
		"without TLS":               {"http://" + plain, []string{"--command-timeout=2s", "put", "x", "5"}, "exit status 1\n"},
		"without a scheme":          {plain, []string{"--command-timeout=2s", "get", "x"}, "exit status 1\n"},
	}
	t.Run("etcdctl", func(t *testing.T) {
		for what, l := range cases {
			t.Run(what, func(t *testing.T) {
				t.Parallel()
				if got := etcdctl(t, l.endpoint, "", l.args...); !strings.HasSuffix(got, l.want) {
					t.Error(got)
				}
			})
		}
	})

	pair, err := tls.LoadX509KeyPair(client.Cert, client.Key)
	if err != nil {
		t.Fatal(err)
	}
	c3, err := clientv3.New(clientv3.Config{
		Endpoints: []string{endpoint}, TLS: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: ca.Pool()}, Logger: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c3.Close()
	if err := c3.Sync(soon(t)); err != nil || c3.Endpoints()[0] != endpoint {
		t.Errorf("%q, %v", c3.Endpoints(), err)
	}
	seen := c3.Watch(soon(t), "y", clientv3.WithCreatedNotify())
	if r := <-seen; !r.Created {
		t.Fatal(r.Err())
	}
	if _, err := c3.Put(soon(t), "y", "1"); err != nil {
		t.Fatal(err)
	}
	if r := <-seen; r.Err() != nil || len(r.Events) != 1 {
		t.Error(r.Err())
	}
	if r, err := c3.Get(soon(t), "x"); err != nil || string(r.Kvs[0].Value) != "1" {
		t.Errorf("%v, %v: somebody without a right wrote", r, err)
	}
}
