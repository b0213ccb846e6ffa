package etcdstore

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/fairlead/fairlead/core/api/forward"
)

// TLS names PEM files. All empty means no TLS, but for endpoints with https://,
// which are believed by the authorities of the host.
type TLS struct{ Cert, Key, CA string }

// load reads the files, for a server of this name.
func (t TLS) load(server string) (*tls.Config, error) {
	c := &tls.Config{ServerName: server, MinVersion: tls.VersionTLS12}
	if t.Cert != "" || t.Key != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("etcdstore: store.tls.cert and store.tls.key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	if t.CA != "" {
		text, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("etcdstore: store.tls.ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("etcdstore: store.tls.ca: %s has no certificate in PEM form", t.CA)
		}
	}
	return c, nil
}

// endpoints are where an etcd cluster is.
type endpoints struct {
	servers []forward.Server
	secure  map[string]bool // by address
	tls     TLS
}

const (
	plainScheme  = "http://"
	secureScheme = "https://"
)

// parse takes what the configuration says.
func parse(list []string, t TLS) (*endpoints, error) {
	if len(list) == 0 {
		return nil, errors.New("etcdstore: store.endpoints is empty: name the addresses of the etcd cluster, such as 10.9.0.5:2379")
	}
	e := &endpoints{secure: map[string]bool{}, tls: t}
	for _, text := range list {
		address, secure := text, t != TLS{}
		if rest, plain := strings.CutPrefix(text, plainScheme); plain {
			if secure {
				return nil, fmt.Errorf("etcdstore: store.endpoints names %s, without TLS, and store.tls is set: say https://, or remove store.tls", text)
			}
			address = rest
		} else if rest, is := strings.CutPrefix(text, secureScheme); is {
			address, secure = rest, true
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			return nil, fmt.Errorf("etcdstore: store.endpoints names %q, which is not host:port or http(s)://host:port: %w", text, err)
		}
		if was, twice := e.secure[address]; twice {
			if was != secure {
				return nil, fmt.Errorf("etcdstore: store.endpoints names %s with TLS and without: remove one", address)
			}
			continue
		}
		e.secure[address] = secure
		e.servers = append(e.servers, forward.Server{Name: address, Address: address})
	}
	return e, nil
}

// Times of connections: an etcd that vanished is noticed by them.
const (
	connectTimeout   = 5 * time.Second
	keepaliveEvery   = 10 * time.Second // etcd takes more than one in 5 s for an attack
	keepaliveTimeout = 5 * time.Second
)

// dial returns a connection to an address, with the files as they are now.
func (e *endpoints) dial(address string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	security := insecure.NewCredentials()
	if e.secure[address] {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, fmt.Errorf("etcdstore: %w", err)
		}
		c, err := e.tls.load(host)
		if err != nil {
			return nil, err
		}
		security = credentials.NewTLS(c)
	}
	return grpc.NewClient("passthrough:///"+address, append([]grpc.DialOption{
		grpc.WithTransportCredentials(security),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: connectTimeout}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveEvery, Timeout: keepaliveTimeout}),
		grpc.WithDisableServiceConfig(), grpc.WithNoProxy(),
	}, options...)...)
}
