package cli

import (
	"encoding/json"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/fairlead/fairlead/dataplane/conformance"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/dataplane/sdk"
	"github.com/fairlead/fairlead/test/short"
)

// serveProvider serves the reference provider and returns its endpoint.
func serveProvider(t *testing.T) string {
	t.Helper()
	service, err := sdk.NewService(fake.New(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(short.Dir(t), "s"))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterDataPlaneProviderServer(server, service)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		service.Close()
		server.Stop()
		<-done
	})
	return "unix:" + l.Addr().String()
}

func TestPluginConform(t *testing.T) {
	endpoint := serveProvider(t)
	for _, c := range []struct {
		args   string
		code   int
		stdout string
		stderr string
	}{
		{"plugin", 0, "conform", ""},
		{"plugin conform --list", 0, "reconcile.base-mismatch", ""},
		{"plugin conform --endpoint " + endpoint + " --only identity,session", 0, ", 0 failed, 1 skipped", ""},
		{"plugin conform --endpoint " + endpoint + ` --config {"delay":"40ms"} --patience 20ms --only reconcile.answer`, 1, "remedy", ""},

		{"plugin conform --traffic --list", 0, "table.local-vip-tcp-v4", ""},
		{"plugin conform --traffic --exec /nonexistent", 5, "", "/nonexistent"},

		{"plugin conform --endpoint unix:/nonexistent", 5, "", "does not answer Info"},
		{"plugin conform --exec /nonexistent", 5, "", "/nonexistent"},
		{"plugin conform --exec true", 5, "", "before it listened"},

		{"plugin conform", 2, "", "give either --exec or --endpoint"},
		{"plugin conform --exec a --endpoint b", 2, "", "give either --exec or --endpoint"},
		{"plugin conform --endpoint 127.0.0.1:80", 2, "", "want unix:PATH"},
		{"plugin conform --endpoint unix:/a --child", 2, "", "--child is about a program"},
		{"plugin conform --endpoint unix:/a -- b", 2, "", "are for a program"},
		{"plugin conform --exec a b", 2, "", "behind --"},
		{"plugin conform --exec a --config {", 2, "", "is no JSON"},
		{"plugin conform --exec a --services -1", 2, "", "below 0"},
		{"plugin conform --traffic --endpoint unix:/a", 2, "", "give --exec without --child"},
		{"plugin conform --traffic --exec a --services 5", 2, "", "give --scale"},
		{"plugin conform --traffic --exec a --without ends", 2, "", "want FEATURE=REASON"},
		{"plugin conform --traffic --exec a --without ends=", 2, "", "without a reason"},
		{"plugin conform --traffic --exec a --without end=why", 2, "", "is no feature"},
		{"plugin conform --traffic --exec a --only reconcile", 2, "", "neither a check nor a group"},
		{"plugin conform --exec a --without ends=why", 2, "", "are for --traffic"},
		{"plugin conform --exec a --only reconcil", 2, "", `"reconcil" is neither a check nor a group`},
	} {
		t.Run(c.args, func(t *testing.T) {
			cmd := newCommand(t)
			if code := cmd.run(strings.Fields(c.args)...); code != c.code {
				t.Errorf("exit code %d, want %d; %s%s", code, c.code, cmd.out.String(), cmd.err.String())
			}
			if out := cmd.out.String(); !strings.Contains(out, c.stdout) {
				t.Errorf("stdout %q, want %q", out, c.stdout)
			}
			if out := cmd.err.String(); !strings.Contains(out, c.stderr) || c.stderr == "" && out != "" {
				t.Errorf("stderr %q, want %q", out, c.stderr)
			}
		})
	}
}

func TestPluginConformJSON(t *testing.T) {
	cmd := newCommand(t)
	cmd.run("plugin", "conform", "--endpoint", serveProvider(t), "--only", "identity", "-o", "json")
	var r conformance.Report
	if err := json.Unmarshal([]byte(cmd.out.String()), &r); err != nil || r.Name != "fake" || len(r.Results) != 3 || r.Results[0].Outcome != conformance.Passed {
		t.Errorf("%v: %s", err, cmd.out.String())
	}
	list := newCommand(t)
	list.run("plugin", "conform", "--list", "-o", "json")
	var checks []checkJSON
	if err := json.Unmarshal([]byte(list.out.String()), &checks); err != nil || len(checks) != len(conformance.Checks()) || checks[0].Demand == "" {
		t.Errorf("%v: %s", err, list.out.String())
	}
}
