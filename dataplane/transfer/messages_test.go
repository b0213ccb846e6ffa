package transfer

import (
	"errors"
	"testing"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/dataplane"
)

// What the system tells a provider, and the provider tells the host, need not be
// UTF-8; an answer with such a text has to arrive all the same.
func TestTextsThatAreNoUTF8(t *testing.T) {
	const bad, good = "a\xffb", "a\uFFFDb"
	for name, m := range map[string]proto.Message{
		"report":      EncodeReport(dataplane.Report{Checks: []dataplane.Check{{Reason: bad, Remedy: bad}}}),
		"diagnostics": EncodeDiagnostics([]dataplane.Diagnostic{{Path: bad, Message: bad}}),
		"result":      EncodeResult(1, dataplane.Result{Statuses: []dataplane.ServiceStatus{{Reason: bad, Message: bad}}}),
		"health":      EncodeHealth(dataplane.Health{Reasons: []string{bad}}),
		"items":       EncodeCleanupItems([]dataplane.CleanupItem{{Object: bad, Message: bad}}),
		"drift":       EncodeEvent(dataplane.Event{Drift: &dataplane.Drift{What: bad}}),
		"resync":      EncodeEvent(dataplane.Event{ResyncWanted: bad}),
	} {
		if _, err := proto.Marshal(m); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if h := DecodeHealth(EncodeHealth(dataplane.Health{Reasons: []string{bad}})); h.Reasons[0] != good {
		t.Errorf("got %q", h.Reasons[0])
	}
	err := ToWire(errors.Join(dataplane.ErrFailed, errors.New(bad)))
	if _, err := proto.Marshal(status.Convert(err).Proto()); err != nil {
		t.Error(err)
	}
}
