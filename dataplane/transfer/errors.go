package transfer

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/dataplane"
)

// ErrorDomain marks the reasons of this contract in an ErrorInfo.
const ErrorDomain = "dataplane.fairlead"

// wireError is how an error of the contract travels. Several share a code, so
// that who reads only codes still does the right thing; the reason tells them
// apart.
type wireError struct {
	err    error
	code   codes.Code
	reason string
}

// wireErrors lists the errors of the contract. An old session has a code of its
// own, since neither a snapshot nor a retry helps it. UNAVAILABLE is left to the
// transport: it means that nobody answered. The first of each code is what it
// means without a reason.
func wireErrors() []wireError {
	return []wireError{
		{dataplane.ErrInvalid, codes.InvalidArgument, "INVALID"},
		{dataplane.ErrBaseMismatch, codes.FailedPrecondition, "BASE_MISMATCH"},
		{dataplane.ErrOldGeneration, codes.FailedPrecondition, "OLD_GENERATION"},
		{dataplane.ErrNotConfigured, codes.FailedPrecondition, "NOT_CONFIGURED"},
		{dataplane.ErrOldSession, codes.PermissionDenied, "OLD_SESSION"},
		{dataplane.ErrBusy, codes.Aborted, "BUSY"},
		{dataplane.ErrLimit, codes.ResourceExhausted, "LIMIT"},
		{dataplane.ErrUnsupported, codes.Unimplemented, "UNSUPPORTED"},
		{dataplane.ErrFailed, codes.Internal, "FAILED"},
	}
}

// ToWire returns err as an error with a gRPC status: code, message, and an
// ErrorInfo with the reason. Ends of a context keep their meaning; any error
// that is none of the contract's is taken as ErrFailed. ToWire(nil) is nil.
func ToWire(err error) error {
	if err == nil {
		return nil
	}
	for _, w := range wireErrors() {
		if errors.Is(err, w.err) {
			return w.wrap(err.Error())
		}
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	}
	return wireError{code: codes.Internal, reason: "FAILED"}.wrap(fmt.Sprintf("%v: %v", dataplane.ErrFailed, err))
}

func (w wireError) wrap(message string) error {
	s, err := status.New(w.code, text(message)).WithDetails(&errdetails.ErrorInfo{Reason: w.reason, Domain: ErrorDomain})
	if err != nil {
		return status.Error(w.code, text(message))
	}
	return s.Err()
}

// FromWire returns what a call's error means: it wraps one of the errors of the
// contract, or the end of a context, and keeps the gRPC status. An error that
// the provider did not send, such as a broken connection, is returned as it is.
// FromWire(nil) is nil.
func FromWire(err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	reason := ""
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetDomain() == ErrorDomain {
			reason = info.GetReason()
		}
	}
	switch s.Code() {
	case codes.DeadlineExceeded:
		return &remoteError{meaning: context.DeadlineExceeded, status: err}
	case codes.Canceled:
		return &remoteError{meaning: context.Canceled, status: err}
	}
	all := wireErrors()
	for _, w := range all {
		if w.code == s.Code() && w.reason == reason {
			return &remoteError{meaning: w.err, status: err}
		}
	}
	for _, w := range all {
		if w.code == s.Code() || s.Code() == codes.Unknown && w.reason == "FAILED" {
			return &remoteError{meaning: w.err, status: err}
		}
	}
	return err
}

// remoteError is an error of the contract that came over the wire.
type remoteError struct {
	meaning error
	status  error
}

func (e *remoteError) Error() string   { return brief(status.Convert(e.status).Message()) }
func (e *remoteError) Unwrap() []error { return []error{e.meaning, e.status} }
