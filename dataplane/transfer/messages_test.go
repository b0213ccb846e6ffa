package transfer

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
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

// What a provider says is kept and shown beside what others say: in part, if it
// is endless.
func TestEndlessTextsAreCut(t *testing.T) {
	endless := strings.Repeat("é", 4<<20)
	health := DecodeHealth(EncodeHealth(dataplane.Health{State: dataplane.HealthDegraded, Reasons: slices.Repeat([]string{endless[:4<<10]}, 1000)}))
	if n := len(health.Reasons); n != maxReasons {
		t.Errorf("%d reasons", n)
	}
	st := DecodeStatus(EncodeStatus(dataplane.ServiceStatus{Reason: endless, Message: endless}))
	info := DecodeInfo(EncodeInfo(dataplane.Info{Version: endless, Vendor: endless}, 0))
	check := DecodeReport(EncodeReport(dataplane.Report{Checks: []dataplane.Check{{Reason: endless, Remedy: endless}}})).Checks[0]
	note := DecodeDiagnostics(EncodeDiagnostics([]dataplane.Diagnostic{{Path: endless, Message: endless}}))[0]
	refusal := FromWire(status.Error(codes.Internal, endless)).Error()
	for n, s := range append(health.Reasons, st.Reason, st.Message, info.Version, info.Vendor, check.Reason, check.Remedy, note.Path, note.Message, refusal) {
		if len(s) > maxTextBytes || !utf8.ValidString(s) || !strings.HasSuffix(s, cutMark) || !strings.HasPrefix(s, "éé") {
			t.Errorf("text %d has %d bytes and ends with %q", n, len(s), s[max(0, len(s)-8):])
		}
	}
	if whole := strings.Repeat("x", maxTextBytes); brief(whole) != whole {
		t.Error("one that is not too long was cut")
	}
}
