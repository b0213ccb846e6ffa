package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/dataplane"
)

func TestErrorsSurviveTheWire(t *testing.T) {
	for want, code := range map[error]codes.Code{
		dataplane.ErrInvalid:       codes.InvalidArgument,
		dataplane.ErrBaseMismatch:  codes.FailedPrecondition,
		dataplane.ErrOldGeneration: codes.FailedPrecondition,
		dataplane.ErrNotConfigured: codes.FailedPrecondition,
		dataplane.ErrOldSession:    codes.PermissionDenied,
		dataplane.ErrBusy:          codes.Aborted,
		dataplane.ErrLimit:         codes.ResourceExhausted,
		dataplane.ErrUnsupported:   codes.Unimplemented,
		dataplane.ErrFailed:        codes.Internal,
		context.DeadlineExceeded:   codes.DeadlineExceeded,
		context.Canceled:           codes.Canceled,
	} {
		sent := ToWire(fmt.Errorf("here: %w: and why", want))
		if status.Code(sent) != code {
			t.Errorf("%v travels as %v", want, status.Code(sent))
		}
		got := FromWire(sent)
		if !errors.Is(got, want) || status.Code(got) != code || got.Error() != "here: "+want.Error()+": and why" {
			t.Errorf("%v arrives as %v, code %v", want, got, status.Code(got))
		}
		for _, w := range wireErrors() {
			if !errors.Is(w.err, want) && errors.Is(got, w.err) {
				t.Errorf("%v arrives as %v too", want, w.err)
			}
		}
	}
}

// A provider in another language may send codes alone.
func TestCodesWithoutReasons(t *testing.T) {
	for code, want := range map[codes.Code]error{
		codes.InvalidArgument:    dataplane.ErrInvalid,
		codes.FailedPrecondition: dataplane.ErrBaseMismatch,
		codes.PermissionDenied:   dataplane.ErrOldSession,
		codes.Aborted:            dataplane.ErrBusy,
		codes.ResourceExhausted:  dataplane.ErrLimit,
		codes.Unimplemented:      dataplane.ErrUnsupported,
		codes.Internal:           dataplane.ErrFailed,
		codes.Unknown:            dataplane.ErrFailed,
	} {
		if got := FromWire(status.Error(code, "x")); !errors.Is(got, want) {
			t.Errorf("%v means %v", code, got)
		}
	}
}

// What the transport says is no word of the provider.
func TestErrorsOfTheTransport(t *testing.T) {
	unavailable := status.Error(codes.Unavailable, "connection refused")
	for _, err := range []error{nil, io.EOF, unavailable} {
		if got := FromWire(err); !errors.Is(got, err) || fmt.Sprint(got) != fmt.Sprint(err) {
			t.Errorf("%v became %v", err, got)
		}
	}
	if ToWire(nil) != nil {
		t.Error("an error out of nothing")
	}
	// A provider that is a client of something else does not pass its codes on.
	if got := FromWire(ToWire(unavailable)); !errors.Is(got, dataplane.ErrFailed) {
		t.Errorf("got %v", got)
	}
}
