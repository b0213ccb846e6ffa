// Package certs makes certificate authorities, and certificates for 127.0.0.1, for
// tests of TLS.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority issues certificates.
type Authority struct {
	PEM  []byte // its own certificate
	File string // that has it

	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair is a certificate with its private key, as PEM files.
type Pair struct{ Cert, Key string }

// New makes an authority.
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, File: filepath.Join(t.TempDir(), "ca.pem")}
	a.cert, a.key, a.PEM = a.make(&x509.Certificate{
		Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	})
	Write(t, a.File, a.PEM)
	return a
}

// Issue makes a certificate of that name for 127.0.0.1, for servers and for clients.
// It began two hours ago, so that one which ended an hour ago is well-formed.
func (a *Authority) Issue(name string, until time.Time) (cert, key []byte) {
	a.t.Helper()
	_, private, cert := a.make(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// Files issues a certificate that is good for an hour, into files.
func (a *Authority) Files(name string) Pair {
	a.t.Helper()
	dir := a.t.TempDir()
	p := Pair{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	cert, key := a.Issue(name, time.Now().Add(time.Hour))
	Write(a.t, p.Cert, cert)
	Write(a.t, p.Key, key)
	return p
}

// Pool trusts this authority alone.
func (a *Authority) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// Client trusts this authority, and shows a certificate unless cert is nil.
func (a *Authority) Client(cert, key []byte) *tls.Config {
	a.t.Helper()
	c := &tls.Config{RootCAs: a.Pool()}
	if cert == nil {
		return c
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		a.t.Fatal(err)
	}
	c.Certificates = []tls.Certificate{pair}
	return c
}

// Write writes a file that only its owner may read.
func Write(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// make signs a certificate: the authority's own if it has none yet.
func (a *Authority) make(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		a.t.Fatal(err)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
