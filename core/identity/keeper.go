package identity

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Keeper has a node's certificate and knows whom to believe. Its methods may be
// called from any goroutine; it has none of its own.
type Keeper struct {
	cluster string
	node    Node
	now     func() time.Time

	mu          sync.Mutex
	authorities []*authority // the first one signs
	generation  uint64       // how often that changed
	cert        *tls.Certificate
	renewAt     time.Time
}

// Node is who an agent says that it is: its id, which is that of its data directory
// in hexadecimal, and its name. Names are what people configure, ids are for all time.
type Node struct{ ID, Name string }

// NewKeeper returns the keeper of a node. Now is the wall clock.
func NewKeeper(cluster string, node Node, secrets []Secret, now func() time.Time) (*Keeper, error) {
	k := &Keeper{cluster: cluster, node: node, now: now}
	return k, k.SetSecrets(secrets)
}

// SetSecrets changes the secrets: of new connections from now on. Open ones stay,
// until those who have them ask StillBelieved.
func (k *Keeper) SetSecrets(secrets []Secret) error {
	if len(secrets) == 0 {
		return fmt.Errorf("%w: there is none", ErrSecret)
	}
	var all []*authority
	for _, s := range secrets {
		a, err := newAuthority(k.cluster, s)
		if err != nil {
			return err
		}
		all = append(all, a)
	}
	now := k.now()
	cert, err := all[0].issue(k.cluster, k.node, now)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.authorities, k.cert, k.renewAt = all, cert, now.Add(Lifetime/4)
	k.generation++
	return nil
}

// Generation counts how often the secrets were set: connections of another one
// may have been made with a certificate that others believe no longer.
func (k *Keeper) Generation() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.generation
}

// StillBelieved reports whether one of the secrets is still the one with which a
// connection was made. That its certificate has run out since plays no part.
func (k *Keeper) StillBelieved(s tls.ConnectionState) bool {
	_, err := k.Peer(s)
	return err == nil || errors.Is(err, ErrTime)
}

// certificate returns the node's certificate, a new one from half of its time
// to come on; also when the clock was set back before its beginning.
func (k *Keeper) certificate() (*tls.Certificate, error) {
	now := k.now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if now.Before(k.renewAt) && now.After(k.cert.Leaf.NotBefore) {
		return k.cert, nil
	}
	cert, err := k.authorities[0].issue(k.cluster, k.node, now)
	if err != nil {
		return nil, err
	}
	k.cert, k.renewAt = cert, now.Add(Lifetime/4)
	return cert, nil
}

// Peer returns the node at the other end of a connection that was verified.
func (k *Keeper) Peer(s tls.ConnectionState) (Node, error) {
	if len(s.PeerCertificates) == 0 {
		return Node{}, ErrNoCertificate
	}
	k.mu.Lock()
	all := k.authorities
	k.mu.Unlock()
	return verify(all, k.cluster, s.PeerCertificates[0], k.now())
}

// Server returns the configuration of a listener: it takes nodes of the cluster
// only. Every connection is verified, resumed ones as well, which is why this is
// done in VerifyConnection and not in VerifyPeerCertificate.
func (k *Keeper) Server() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		Time:       k.now,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return k.certificate()
		},
		ClientAuth: tls.RequireAnyClientCert,
		VerifyConnection: func(s tls.ConnectionState) error {
			_, err := k.Peer(s)
			return err
		},
		NextProtos: []string{"h2"},
	}
}

// Client returns the configuration of a connection to the node of a name; to any of
// the cluster if that is empty.
func (k *Keeper) Client(name string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		Time:       k.now,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return k.certificate()
		},
		// Names of hosts mean nothing here: who it is, is verified below.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			got, err := k.Peer(s)
			if err == nil && name != "" && got.Name != name {
				err = fmt.Errorf("%w: it is %s, and %s was meant", ErrOtherNode, got.Name, name)
			}
			return err
		},
		NextProtos: []string{"h2"},
	}
}

// Explain says in words of this package what the other side of a connection
// refused, which TLS tells by a number.
func Explain(err error) error {
	if err == nil || errors.Is(err, ErrStranger) || errors.Is(err, ErrTime) {
		return err
	}
	switch text := err.Error(); {
	case strings.Contains(text, "remote error: tls: bad certificate"), strings.Contains(text, "remote error: tls: unknown certificate authority"):
		return fmt.Errorf("identity: the other side does not believe this node's certificate; its log says why: no secret in common, another cluster.name, or clocks more than a day apart: %w", err)
	case strings.Contains(text, "first record does not look like a TLS handshake"):
		return fmt.Errorf("identity: the other side does not speak TLS: it has no cluster.secret_file, or this is another port: %w", err)
	}
	return err
}
