package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"
)

// Option changes how an agent is dialled.
type Option func(*line)

// WithTLS says what is trusted and shown under TLS, and that a target of the form
// host:port is under TLS, too. Without it, targets that begin with https:// are
// trusted if the system's authorities say so.
func WithTLS(config *tls.Config) Option {
	return func(l *line) {
		l.config = config
		l.target.tls = l.target.tls || l.target.network == "tcp" && !l.target.plain
	}
}

// Address returns network and address of a target, as package net takes them. A
// target with a slash, or without a colon, is the path of a Unix socket, unless it
// begins with http:// or https://.
func Address(target string) (network, address string) {
	t := parseTarget(target)
	return t.network, t.address
}

// target is where an agent is.
type target struct {
	network, address string
	tls              bool
	plain            bool // it was said that there is no TLS
}

func parseTarget(s string) target {
	for scheme, secure := range map[string]bool{"http://": false, "https://": true} {
		if rest, ok := strings.CutPrefix(s, scheme); ok {
			return target{network: "tcp", address: strings.TrimSuffix(rest, "/"), tls: secure, plain: !secure}
		}
	}
	if strings.Contains(s, "/") || !strings.Contains(s, ":") {
		return target{network: "unix", address: s}
	}
	return target{network: "tcp", address: s}
}

// line makes connections to one target, and knows what became of them: gRPC's errors
// do not tell an agent that stopped from a port of something else.
type line struct {
	target target
	config *tls.Config // nil: the default
	// patience is how long it is tried whether there is TLS; tests have more.
	patience time.Duration

	spoke   atomic.Bool           // the other side began as HTTP/2 does
	refused atomic.Pointer[error] // the alert of a server that did not want us
	unshown atomic.Bool           // the server asked for a certificate, and there is none
}

func (l *line) dial(ctx context.Context) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, l.target.network, l.target.address)
	if err != nil {
		return nil, dialError(l.target.address, err)
	}
	if !l.target.tls {
		return &listening{Conn: conn, line: l}, nil
	}
	config := l.config.Clone()
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	config.NextProtos = []string{"h2"}
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(l.target.address) // it was dialled: it is one
	}
	if len(config.Certificates) == 0 && config.GetClientCertificate == nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			l.unshown.Store(true)
			return &tls.Certificate{}, nil
		}
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, tlsError(l.target.address, err)
	}
	return &listening{Conn: secure, line: l}, nil
}

// listening notes how the other side begins.
type listening struct {
	net.Conn
	line  *line
	begun bool // only the reader looks
}

// Read implements net.Conn.
func (l *listening) Read(b []byte) (int, error) {
	const typeAt, settings = 3, 4 // in the header of the frame that every HTTP/2 server sends first, RFC 9113 §4.1
	n, err := l.Conn.Read(b)
	if !l.begun && n > typeAt {
		l.begun = true
		if b[typeAt] == settings {
			l.line.spoke.Store(true)
		}
	}
	// From TLS 1.3 on, a server looks at our certificate after our handshake.
	if isAlarm(err) {
		l.line.refused.Store(&err)
	}
	return n, err
}

// trouble says what is known of connections that came to nothing; nil if nothing is.
func (l *line) trouble() error {
	switch alarm := l.refused.Load(); {
	case alarm != nil:
		return tlsError(l.target.address, *alarm)
	case l.unshown.Load() && !l.spoke.Load():
		// Its alert is lost where it closes before it read what we sent.
		return tlsError(l.target.address, errUnshown)
	case l.target.network == "tcp" && !l.target.tls && !l.spoke.Load() && l.speaksTLS():
		return fmt.Errorf("%w at %s: the client API is under TLS there; name it https://%[2]s", ErrTLS, l.target.address)
	}
	return nil
}

// speaksTLS tries: a server under TLS closes without a word if one does not speak it.
func (l *line) speaksTLS() bool {
	ctx, cancel := context.WithTimeout(context.Background(), l.patience) // the call is over
	defer cancel()
	// Nothing is sent over it, so it does not matter who it is.
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", l.target.address)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil || isAlarm(err)
}

// isAlarm reports whether the other side ended TLS with an alert.
func isAlarm(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error" // crypto/tls does not export the type
}
