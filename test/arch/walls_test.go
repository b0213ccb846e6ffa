package arch

import (
	"strings"
	"testing"
)

// Each line crosses one wall, or comes close to it without. A wall that nobody
// can hit protects nothing.
func TestWallsCanFail(t *testing.T) {
	for _, c := range []struct {
		pkg, imports string
		why          string // part of the finding; "" means allowed
	}{
		{"core/swim", "net", "it is pure"},
		{"core/swim/wire", "os", "it is pure"},
		{"core/swim", "os/exec", "it is pure"},
		{"core/swim", "sync", "it is pure"},
		{"core/swim", "sync/atomic", "it is pure"},
		{"core/swim", "syscall", "it is pure"},
		{"core/swim", "golang.org/x/sys/unix", "it is pure"},
		{"core/swim", "google.golang.org/grpc", "it is pure"},
		{"core/swim", "log/slog", "it is pure"},
		{"core/swim", "crypto/rand", "it is pure"},
		{"core/swim", "github.com/prometheus/client_golang/prometheus", "it is pure"},
		{"core/dns/zone", "net", "it is pure"},
		{"core/dns", "net", ""},
		{"core/swim", "net/netip", ""},
		{"core/swim", "math/rand/v2", ""},
		{"core/swim", "time", ""},
		{"core/swim", "github.com/cespare/xxhash/v2", ""},
		{"core/swim", "m/core/membership", "stands on pure packages only"},
		{"core/swim", "m/core/swim/wire", ""},
		{"core/view", "m/core/policy", ""},
		{"core/model", "m/core/swim", "ground that all others stand on"},
		{"core/swim/wire", "m/core/swim", "the codec knows values"},
		{"core/reconcile", "m/plugins/ebpf", "data planes are separate processes"},
		{"core/reconcile", "m/bpf", "data planes are separate processes"},
		{"core/reconcile", "m/dataplane", ""},
		{"core/api", "m/core/agent", "agent wires the others"},
		{"core/agent/log", "m/core/agent", ""},
		{"core/config", "m/core/membership", "configuration is values"},
		{"core/membership", "m/core/config", "a Config of its own"},
		{"core/membership", "m/core/swim", ""},
		{"core/api/client", "m/core/membership", "declares the roles"},
		{"dataplane/sdk", "m/core/model", "strangers build plugins"},
		{"dataplane/sdk", "m/dataplane", ""},
		{"plugins/iptables", "m/core/model", "what strangers get"},
		{"plugins/iptables", "m/bpf", "what strangers get"},
		{"plugins/ebpf", "m/bpf", ""},
		{"plugins/ebpf", "m/plugins/l7", "what strangers get"},
		{"cmd/fairlead-dataplane-l7", "m/core/agent", "ten lines"},
		{"cmd/fairlead-dataplane-l7", "m/dataplane/sdk", ""},
		{"cmd/fairlead", "m/core/agent", ""},
		{"core/api", "m/test/scale", "depends on the tests"},
		{"core/api", "testing", "depends on the tests"},
		{"dataplane/conformance", "testing", ""},
		{"test/e2e", "m/test/netns", ""},
		{"core/api", "m/cmd/fairlead", "are leaves"},
		{"core/api", "m/contrib/x", "are leaves"},
		{"test/e2e", "m/cmd/fairlead/cli", "are leaves"},
	} {
		p := Package{ImportPath: "m/" + c.pkg, Imports: []string{c.imports}}
		p.Module.Path = "m"
		found := strings.Join(CheckWalls(Walls(), []Package{p}), "\n")
		if c.why == "" && found != "" {
			t.Errorf("%s may import %s, but: %s", c.pkg, c.imports, found)
		}
		if c.why != "" && !strings.Contains(found, c.why) {
			t.Errorf("%s imports %s: found %q, want a finding with %q", c.pkg, c.imports, found, c.why)
		}
	}
}

func TestWallsOfTests(t *testing.T) {
	p := Package{ImportPath: "m/plugins/l7", TestImports: []string{"m/test/scale", "m/dataplane/conformance"}, XTestImports: []string{"m/core/agent"}}
	p.Module.Path = "m"
	found := CheckWalls(Walls(), []Package{p})
	if len(found) != 1 || !strings.HasPrefix(found[0], "a test of plugins/l7 imports core/agent: ") {
		t.Errorf("found %q, want core/agent alone", found)
	}
}
