package dataplane_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

func protocol(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestProtocolNamesAll finds every call, message, enum and value of the .proto
// file in the text.
func TestProtocolNamesAll(t *testing.T) {
	text := protocol(t)
	n := 0
	named := func(d protoreflect.Descriptor) {
		n++
		if !regexp.MustCompile(`\b` + string(d.Name()) + `\b`).MatchString(text) {
			t.Errorf("PROTOCOL.md does not name %s", d.FullName())
		}
	}
	file := pb.File_dataplane_dataplanepb_dataplane_proto
	for i := range file.Services().Len() {
		s := file.Services().Get(i)
		named(s)
		for j := range s.Methods().Len() {
			named(s.Methods().Get(j))
		}
	}
	var messages func(protoreflect.MessageDescriptors)
	messages = func(ms protoreflect.MessageDescriptors) {
		for i := range ms.Len() {
			if m := ms.Get(i); !m.IsMapEntry() {
				named(m)
				messages(m.Messages())
			}
		}
	}
	messages(file.Messages())
	for i := range file.Enums().Len() {
		e := file.Enums().Get(i)
		named(e)
		for j := range e.Values().Len() {
			named(e.Values().Get(j))
		}
	}
	if n < 120 {
		t.Errorf("%d names in the .proto file only: is it the whole?", n)
	}
}

// TestProtocolNamesNoOther finds values in the text that the .proto lacks.
func TestProtocolNamesNoOther(t *testing.T) {
	values := map[string]bool{}
	enums := pb.File_dataplane_dataplanepb_dataplane_proto.Enums()
	var prefixes []string
	for i := range enums.Len() {
		vs := enums.Get(i).Values()
		for j := range vs.Len() {
			values[string(vs.Get(j).Name())] = true
		}
		prefix, _, _ := strings.Cut(string(vs.Get(0).Name()), "_")
		prefixes = append(prefixes, prefix)
	}
	for _, name := range regexp.MustCompile(`\b(?:`+strings.Join(prefixes, "|")+`)_[A-Z0-9_]+\b`).FindAllString(protocol(t), -1) {
		if !values[name] && name != "PROTOCOL_VERSIONS" {
			t.Errorf("PROTOCOL.md names %s, which is not in the .proto file", name)
		}
	}
}

func TestProtocolNamesReasonsAndLimits(t *testing.T) {
	text := protocol(t)
	for _, reason := range []string{
		dataplane.ReasonBadFrontend, dataplane.ReasonDuplicateFrontend, dataplane.ReasonBadEndpoint, dataplane.ReasonLoop, dataplane.ReasonBadValue,
		dataplane.ReasonUnknownValue, dataplane.ReasonLimit, dataplane.ReasonUnsupported, dataplane.ReasonApplyFailed, dataplane.GaugeServices, dataplane.GaugeEndpoints,
	} {
		if !strings.Contains(text, "`"+reason+"`") {
			t.Errorf("PROTOCOL.md does not name the reason %s", reason)
		}
	}
	for _, size := range []int{dataplane.MaxDefinitionBytes, dataplane.MaxEndpointTextBytes} {
		if !strings.Contains(text, fmt.Sprintf("%d KiB", size>>10)) {
			t.Errorf("PROTOCOL.md does not say %d KiB", size>>10)
		}
	}
}

// TestProtocolLinks follows the table of contents.
func TestProtocolLinks(t *testing.T) {
	text := protocol(t)
	targets := map[string]bool{}
	for _, h := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(text, -1) {
		target := strings.ReplaceAll(regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")
		targets[target] = true
		if !strings.Contains(text, "](#"+target+")") {
			t.Errorf("the table of contents lacks %q", h[1])
		}
	}
	for _, l := range regexp.MustCompile(`\]\(#([^)]*)\)`).FindAllStringSubmatch(text, -1) {
		if !targets[l[1]] {
			t.Errorf("link to #%s, which is no section", l[1])
		}
	}
	for _, s := range regexp.MustCompile(`sections? (\d+)(?: to (\d+))?`).FindAllStringSubmatch(text, -1) {
		for _, n := range s[1:] {
			if n != "" && !strings.Contains(text, "\n## "+n+". ") {
				t.Errorf("section %s is no section", n)
			}
		}
	}
}
