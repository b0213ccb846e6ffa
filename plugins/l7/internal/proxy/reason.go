package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/fairlead/fairlead/plugins/l7/internal/backend"
)

// Reason says in a word why a request was not answered by a backend, or not to
// its end. It is in the header X-Fairlead-Reason, the access log and metrics.
type Reason string

// The reasons. They are the same for ever: dashboards hold them.
const (
	ReasonNone            Reason = ""
	ReasonUnknownHost     Reason = "unknown-host"
	ReasonUnknownRoute    Reason = "unknown-route"
	ReasonStarting        Reason = "starting" // the host or route may come yet: not all services are known
	ReasonBadRequest      Reason = "bad-request"
	ReasonMethod          Reason = "method-refused"
	ReasonUpgrade         Reason = "upgrade-refused"
	ReasonLoop            Reason = "loop"
	ReasonNoEndpoint      Reason = "no-endpoint"
	ReasonConnectRefused  Reason = "connect-refused"
	ReasonConnectTimeout  Reason = "connect-timeout"
	ReasonConnectFailed   Reason = "connect-failed" // unreachable, or no descriptor left
	ReasonNoFirstByte     Reason = "no-first-byte"
	ReasonSlowHead        Reason = "head-timeout" // the answer began, its head does not end
	ReasonBackendReset    Reason = "backend-reset"
	ReasonBackendStalled  Reason = "backend-stalled" // it does not take the request's body
	ReasonBadResponse     Reason = "bad-response"
	ReasonTruncated       Reason = "truncated" // the answer ended before its end
	ReasonEndpointGone    Reason = "endpoint-gone"
	ReasonBadUpgrade      Reason = "bad-upgrade" // 101 that nobody asked for, or to something else
	ReasonClientAbort     Reason = "client-abort"
	ReasonClientBodyStall Reason = "client-body-timeout"
	ReasonClientBody      Reason = "client-body"
	ReasonClientStalled   Reason = "client-stalled" // it does not take the answer
)

// statusClientClosed is what the log says of a client that went away; nobody is
// sent it.
const statusClientClosed = 499

// connectReason names why a connect failed.
func connectReason(err error) Reason {
	var timeout net.Error
	switch {
	case errors.Is(err, context.Canceled):
		return ReasonClientAbort
	case errors.Is(err, syscall.ECONNREFUSED):
		return ReasonConnectRefused
	case errors.Is(err, syscall.ETIMEDOUT), errors.As(err, &timeout) && timeout.Timeout():
		return ReasonConnectTimeout
	}
	return ReasonConnectFailed
}

// ours reports whether a connect failed for a lack of this host's, of which the
// endpoint is innocent.
func ours(err error) bool {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// noDescriptor reports whether a connect failed because too many files are open.
func noDescriptor(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// readReason names why the head of an answer could not be read, of which some
// bytes were there or not.
func readReason(err error, begun bool) Reason {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		if begun {
			return ReasonSlowHead
		}
		return ReasonNoFirstByte
	case reset(err):
		return ReasonBackendReset
	case errors.Is(err, io.EOF) && !begun:
		return ReasonBackendReset
	case errors.Is(err, backend.ErrBadResponse), errors.Is(err, backend.ErrHeadTooLarge):
		return ReasonBadResponse
	}
	return ReasonBadResponse
}

func reset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNABORTED)
}
