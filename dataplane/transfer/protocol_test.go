package transfer

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// TestProtocolTellsTheErrors compares the table of PROTOCOL.md, section 11, with
// what ToWire does.
func TestProtocolTellsTheErrors(t *testing.T) {
	b, err := os.ReadFile("../PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	first := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| ([A-Z_]+) \\| `([A-Z_]+)` \\|").FindAllStringSubmatch(string(b), -1) {
		told[row[1]+" "+row[2]] = true
		if first[row[1]] == "" {
			first[row[1]] = row[2]
		}
	}
	shown := map[codes.Code]string{
		codes.InvalidArgument: "INVALID_ARGUMENT", codes.FailedPrecondition: "FAILED_PRECONDITION", codes.PermissionDenied: "PERMISSION_DENIED", codes.Aborted: "ABORTED",
		codes.ResourceExhausted: "RESOURCE_EXHAUSTED", codes.Unimplemented: "UNIMPLEMENTED", codes.Internal: "INTERNAL",
	}
	met := map[codes.Code]bool{}
	for _, w := range wireErrors() {
		if row := shown[w.code] + " " + w.reason; !told[row] {
			t.Errorf("PROTOCOL.md does not tell %s", row)
		} else {
			delete(told, row)
		}
		if !met[w.code] && first[shown[w.code]] != w.reason {
			t.Errorf("the first meaning of %v is %s, PROTOCOL.md tells %s first", w.code, w.reason, first[shown[w.code]])
		}
		met[w.code] = true
	}
	for row := range told {
		t.Errorf("PROTOCOL.md tells %s, which ToWire never says", row)
	}
	if !strings.Contains(string(b), "`"+ErrorDomain+"`") {
		t.Error("PROTOCOL.md does not name the domain of the errors")
	}
}

// TestTheTraceOfTheProtocol plays section 15.
func TestTheTraceOfTheProtocol(t *testing.T) {
	const agent = "7f01"
	s := newScript(t)
	shared := []*pb.Frontend{vip(10)}
	s.apply(incomplete(begin(agent, 12, 0, 5)), define(1, "web", shared, 1, 2))
	unchanged := func(b *pb.Begin, changes ...*pb.Change) {
		t.Helper()
		g, err := s.a.Begin(b)
		if err != nil || !g.Unchanged() {
			t.Fatalf("not unchanged: %v", err)
		}
		for _, c := range changes {
			if err := g.Change(c); err != nil {
				t.Error(err)
			}
		}
	}
	rejected := func(refused []dataplane.ServiceStatus) {
		t.Helper()
		if len(refused) != 1 || refused[0].Service.Name != "db" || refused[0].Reason != dataplane.ReasonDuplicateFrontend {
			t.Errorf("refused %v", refused)
		}
	}
	unchanged(incomplete(begin(agent, 12, 5, 5)))
	_, refused := s.apply(begin(agent, 12, 5, 6), define(2, "db", shared))
	rejected(refused)
	suspect := &pb.Change{Endpoints: []*pb.EndpointGroup{{Service: 1, Endpoints: []*pb.Endpoint{{Id: 2, State: pb.EndpointState_ENDPOINT_STATE_SUSPECT}}}}}
	_, refused = s.apply(begin(agent, 12, 6, 7), suspect)
	rejected(refused)
	if usable := s.a.Given().Service(dataplane.Key{Namespace: "default", Name: "web"}).Usable(); len(usable) != 1 || usable[0].ID != 1 {
		t.Errorf("usable are %v", usable)
	}
	s.apply(begin(agent, 12, 7, 8), removeEndpoint(1, 2))
	unchanged(begin(agent, 12, 7, 8), removeEndpoint(1, 2))
	s.a = NewAssembler(dataplane.Limits{}) // the crash
	s.refused(dataplane.ErrBaseMismatch, begin(agent, 12, 8, 9))
	s.apply(begin(agent, 12, 0, 9), define(1, "web", shared, 1), define(2, "db", shared))
	s.apply(incomplete(begin(agent, 13, 0, 1)), define(1, "web", shared, 1))
	s.refused(dataplane.ErrOldSession, begin(agent, 12, 9, 10))
}
