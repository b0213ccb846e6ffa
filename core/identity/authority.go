package identity

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"strings"
	"time"
)

// Lifetime of a node's certificate: from half of it before it was made, which
// forgives clocks, to half of it after.
const Lifetime = 48 * time.Hour

// authority is the CA of one secret: the same on every node that has it.
type authority struct {
	key  ed25519.PrivateKey
	cert *x509.Certificate
}

// newAuthority makes the CA of a secret. Nothing of it is drawn, so that nothing
// of it has to be handed out.
func newAuthority(cluster string, s Secret) (*authority, error) {
	seed, err := s.derive(cluster, "node CA v1", ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	key := ed25519.NewKeyFromSeed(seed)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Fairlead nodes of " + cluster},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	return &authority{key, cert}, nil
}

// issue makes a certificate for a node, with a key that nobody else ever has.
func (a *authority) issue(cluster string, node Node, now time.Time) (*tls.Certificate, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: node.Name}, NotBefore: now.Add(-Lifetime / 2), NotAfter: now.Add(Lifetime / 2),
		URIs: []*url.URL{nodeURI(cluster, node.ID)}, DNSNames: []string{node.Name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	if err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: crypto.Signer(private), Leaf: leaf}, nil
}

func nodeURI(cluster, id string) *url.URL {
	return &url.URL{Scheme: "fairlead", Host: "cluster", Path: "/" + cluster + "/node/" + id}
}

// The errors of a connection that was not made, as this side found out.
var (
	ErrNoCertificate = errors.New("identity: the other side shows no certificate: it has no cluster.secret_file, or is no agent")
	ErrStranger      = errors.New("identity: the other side's certificate is signed by none of this node's secrets: both need one secret in common in cluster.secret_file, and the same cluster.name")
	ErrTime          = errors.New("identity: the other side's certificate is not valid at this time: compare the clocks of both nodes, which may differ by a day")
	ErrOtherNode     = errors.New("identity: the other side is another node than the one that was meant")
)

// verify returns the node that a certificate is of, if one of the authorities
// signed it.
func verify(all []*authority, cluster string, leaf *x509.Certificate, now time.Time) (Node, error) {
	for _, a := range all {
		if !bytes.Equal(leaf.RawIssuer, a.cert.RawSubject) || leaf.CheckSignatureFrom(a.cert) != nil {
			continue
		}
		if now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
			return Node{}, fmt.Errorf("%w: it is good from %s to %s, and here it is %s", ErrTime, leaf.NotBefore.UTC().Format(time.RFC3339), leaf.NotAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
		}
		if leaf.NotAfter.Sub(leaf.NotBefore) > Lifetime || leaf.IsCA || len(leaf.URIs) != 1 || len(leaf.DNSNames) != 1 {
			return Node{}, fmt.Errorf("%w: it is not of the kind that agents make", ErrStranger)
		}
		id, ok := strings.CutPrefix(leaf.URIs[0].Path, nodeURI(cluster, "").Path)
		if !ok || id == "" || leaf.URIs[0].String() != nodeURI(cluster, id).String() {
			return Node{}, fmt.Errorf("%w: it names %s", ErrStranger, leaf.URIs[0])
		}
		return Node{ID: id, Name: leaf.DNSNames[0]}, nil
	}
	return Node{}, ErrStranger
}
