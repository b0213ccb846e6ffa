package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Errors of Dial and of every call.
var (
	// ErrNoAgent: nobody listens at the target.
	ErrNoAgent = errors.New("no agent answers")
	// ErrDenied: the target may not be opened, or the call is not allowed there.
	ErrDenied = errors.New("not allowed")
	// ErrTLS: client and agent do not agree on TLS.
	ErrTLS = errors.New("no TLS connection")
	// ErrStopped: the agent went away during the call.
	ErrStopped = errors.New("the agent stopped")
)

const startHint = "start it with `fairlead agent`, or name another with --api or FAIRLEAD_API"

func dialError(target string, err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w to open %s: run as the agent's user (root: sudo)", ErrDenied, target)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOTSOCK):
		return fmt.Errorf("%w at %s: is it running? %s", ErrNoAgent, target, startHint)
	default:
		return fmt.Errorf("%w at %s (%w): %s", ErrNoAgent, target, cause(err), startHint)
	}
}

// errUnshown stands for the alert that a server may have sent.
var errUnshown = errors.New("it asked for a certificate and ended the connection")

// tlsError says why a handshake failed, and what to do.
func tlsError(target string, err error) error {
	var header tls.RecordHeaderError
	var verification *tls.CertificateVerificationError
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w at %s: %w", ErrTLS, target, err)
	case errors.As(err, &header), errors.Is(err, io.EOF):
		return fmt.Errorf("%w at %s: what listens there does not speak it; without api.tls an agent is named HOST:PORT", ErrTLS, target)
	case errors.As(err, &verification):
		return fmt.Errorf("%w at %s: %w: name the authority that signed its certificate with --api-cacert", ErrTLS, target, verification.Err)
	case isAlarm(err), errors.Is(err, errUnshown):
		return fmt.Errorf("%w at %s: %w: it may want a certificate of its api.tls.client_ca: name one with --api-cert and --api-key", ErrTLS, target, err)
	default:
		return fmt.Errorf("%w at %s: %w", ErrTLS, target, cause(err))
	}
}

// callError turns the status of a call into words.
func (c *Client) callError(call string, err error) error {
	s := status.Convert(err)
	switch s.Code() {
	case codes.Unavailable:
		if err := c.line.trouble(); err != nil {
			return fmt.Errorf("%s: %w", call, err)
		}
		if !c.line.spoke.Load() {
			return fmt.Errorf("%s: %w at %s: what listens there does not speak the client API, or stopped just now; name api.socket or api.listen of an agent", call, ErrNoAgent, c.target)
		}
		return fmt.Errorf("%s: %w (%s)", call, ErrStopped, c.target)
	case codes.Canceled:
		return fmt.Errorf("%s: %w", call, context.Canceled)
	case codes.DeadlineExceeded:
		return fmt.Errorf("%s: the agent at %s gave no answer in time: %w", call, c.target, context.DeadlineExceeded)
	case codes.PermissionDenied:
		return fmt.Errorf("%s: %w at %s: %s", call, ErrDenied, c.target, s.Message())
	case codes.Unimplemented:
		return fmt.Errorf("%s: the agent at %s is another version and does not know this call", call, c.target)
	default:
		return fmt.Errorf("%s: %s", call, s.Message())
	}
}

// cause drops what a network error says about addresses: the target is named.
func cause(err error) error {
	var sys *os.SyscallError
	var dns *net.DNSError
	switch {
	case errors.As(err, &sys):
		return sys.Err
	case errors.As(err, &dns):
		return dns
	default:
		return err
	}
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) }
