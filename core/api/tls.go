package api

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// lookEvery is how often files of api.tls are looked at, if anybody connects.
const lookEvery = time.Second

// TLSConfig returns the configuration of a listener from PEM files: a certificate
// with its chain, the key of it, and, unless that is empty, the authorities of
// which one must have signed the certificate that a client then has to show.
//
// Files that change are read again, and hold for connections from then on. If one
// cannot be used then, what was read before stays, and the log says so.
func TLSConfig(certFile, keyFile, clientCAFile string, log *slog.Logger) (*tls.Config, error) {
	f := &tlsFiles{cert: certFile, key: keyFile, clientCA: clientCAFile, log: log}
	c, err := f.read()
	if err != nil {
		return nil, err
	}
	f.current, f.lookedAt = c, time.Now()
	if err := c.inTime(time.Now()); err != nil {
		log.Warn("clients will refuse the certificate of api.tls.cert: replace the file", "file", certFile, "error", err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols(),
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return f.now(time.Now()).config, nil
		},
	}, nil
}

// protocols are those of gRPC and of web, which a client gets that does not offer
// the first.
func protocols() []string { return []string{"h2", "http/1.1"} }

// tlsFiles are the files of api.tls.
type tlsFiles struct {
	cert, key, clientCA string
	log                 *slog.Logger

	mu       sync.Mutex
	current  *loadedTLS
	lookedAt time.Time
	broken   string // why the files cannot be used now; empty: they can
}

// loadedTLS is what was in the files.
type loadedTLS struct {
	config *tls.Config
	raw    [3][]byte
}

// now returns what is in the files, as far as it can be used.
func (f *tlsFiles) now(now time.Time) *loadedTLS {
	f.mu.Lock()
	defer f.mu.Unlock()
	if since := now.Sub(f.lookedAt); since >= 0 && since < lookEvery {
		return f.current
	}
	f.lookedAt = now
	next, err := f.read()
	if err == nil && f.current.same(next) {
		f.broken = ""
		return f.current
	}
	if err == nil {
		err = next.inTime(now)
	}
	if err == nil {
		f.current, f.broken = next, ""
		f.log.Info("the files of api.tls were read again", "cert", f.cert, "until", next.config.Certificates[0].Leaf.NotAfter)
	} else if f.broken != err.Error() {
		f.broken = err.Error()
		f.log.Error("the files of api.tls changed and cannot be used: what was read before stays in use", "error", err)
	}
	return f.current
}

// read reads the files. Its errors say which key of the configuration to look at.
func (f *tlsFiles) read() (*loadedTLS, error) {
	out := &loadedTLS{}
	for i, file := range []struct{ key, path string }{{"api.tls.cert", f.cert}, {"api.tls.key", f.key}, {"api.tls.client_ca", f.clientCA}} {
		switch {
		case file.path == "" && i == 2:
			continue
		case file.path == "":
			return nil, fmt.Errorf("api: %s is not set: api.tls needs both cert and key", file.key)
		}
		data, err := os.ReadFile(file.path)
		if err != nil {
			return nil, fmt.Errorf("api: %s: %w: name a PEM file that the agent's user may read", file.key, err)
		}
		out.raw[i] = data
	}
	pair, err := tls.X509KeyPair(out.raw[0], out.raw[1])
	if err != nil {
		return nil, fmt.Errorf("api: api.tls.cert %s with api.tls.key %s: %w: they have to be a PEM certificate, leaf first, and its own key", f.cert, f.key, err)
	}
	out.config = &tls.Config{
		MinVersion:   tls.VersionTLS12,
		NextProtos:   protocols(),
		Certificates: []tls.Certificate{pair},
		// Connections last long: what a resumed handshake saves is not worth that
		// nobody looks at the certificate.
		SessionTicketsDisabled: true,
	}
	if f.clientCA == "" {
		return out, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(out.raw[2]) {
		return nil, fmt.Errorf("api: api.tls.client_ca %s: there is no certificate in it: name a PEM file with those of the authorities", f.clientCA)
	}
	out.config.ClientAuth, out.config.ClientCAs = tls.RequireAndVerifyClientCert, pool
	return out, nil
}

func (l *loadedTLS) same(other *loadedTLS) bool {
	for i := range l.raw {
		if !bytes.Equal(l.raw[i], other.raw[i]) {
			return false
		}
	}
	return true
}

// inTime reports that the certificate is not valid now.
func (l *loadedTLS) inTime(now time.Time) error {
	leaf := l.config.Certificates[0].Leaf
	switch {
	case now.After(leaf.NotAfter):
		return fmt.Errorf("api: api.tls.cert: the certificate ran out at %s", leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("api: api.tls.cert: the certificate is valid from %s on only: is the clock right?", leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}
