package iptables

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/plugins/iptables/internal/host"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/netns"
	"github.com/fairlead/fairlead/test/runnable"
)

// everything is all that a probe could leave behind.
func everything(t *testing.T) string {
	t.Helper()
	var all []string
	for _, c := range [][]string{{"nft", "list", "ruleset"}, {"iptables-legacy-save"}, {"ip6tables-legacy-save"}, {"ip", "rule"}, {"ip", "route", "show", "table", "all"}} {
		for line := range strings.Lines(command(t, c[0], c[1:]...)) {
			if line[0] != '#' {
				all = append(all, line)
			}
		}
	}
	recent, _ := filepath.Glob("/proc/net/xt_recent/FAIRLEAD*")
	return strings.Join(all, "") + strings.Join(recent, "\n") + sysctls()
}

func TestProbeLeavesNothing(t *testing.T) {
	netns.Isolated(t)
	before := everything(t)
	report, err := New("test").Probe(t.Context())
	if err != nil || report.Verdict != dataplane.Supported {
		t.Errorf("%+v, %v", report, err)
	}
	for _, c := range report.Checks {
		t.Logf("%-18s %-12v %s", c.ID, c.Result, c.Reason)
		if c.Result != dataplane.Supported && c.Remedy == "" {
			t.Errorf("%s is %v without a remedy", c.ID, c.Result)
		}
	}
	if after := everything(t); after != before {
		t.Errorf("before the probe\n%s\nafter it\n%s", before, after)
	}
}

// TestProbeWithoutBinaries names what to install.
func TestProbeWithoutBinaries(t *testing.T) {
	p := New("test")
	p.find = func(context.Context) (map[host.Variant]host.Tools, error) { return nil, host.ErrNoTools }
	report, err := p.Probe(t.Context())
	if err != nil || report.Verdict != dataplane.Unsupported || !strings.Contains(report.Checks[0].Remedy, "apt-get install iptables") {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestProbeNamesWhatIsMissing: a binary that refuses one feature.
func TestProbeNamesWhatIsMissing(t *testing.T) {
	netns.Isolated(t)
	dir := t.TempDir()
	for _, name := range []string{"iptables", "ip6tables"} {
		script := "#!/bin/sh\ncase \"$*\" in *statistic*) echo 'iptables: No chain/target/match by that name.' >&2; exit 1;; esac\nexec /usr/sbin/" + name + "-nft \"$@\"\n"
		if err := runnable.Write(filepath.Join(dir, name), []byte(script)); err != nil {
			t.Fatal(err)
		}
		for _, tool := range []string{"-save", "-restore"} {
			if err := os.Symlink("/usr/sbin/"+name+"-nft"+tool, filepath.Join(dir, name+tool)); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	report, err := New("test").Probe(t.Context())
	if err != nil || report.Verdict != dataplane.Unsupported {
		t.Errorf("%+v, %v", report, err)
	}
	for _, c := range report.Checks {
		if c.ID == "ipv4-statistic" && c.Result == dataplane.Unsupported && strings.Contains(c.Remedy, "xt_statistic") {
			return
		}
	}
	t.Errorf("the missing feature is not named: %+v", report.Checks)
}

// TestProbeWithoutRights: a process without capabilities is told which it needs, with
// either variant.
func TestProbeWithoutRights(t *testing.T) {
	netns.Isolated(t)
	path := build(t)
	if err := os.Chmod(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []int{0, 65534} {
		dir, err := os.MkdirTemp("", "it-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		if err := os.Chown(dir, uid, -1); err != nil {
			t.Fatal(err)
		}
		user := []string{fmt.Sprint("--reuid=", uid), "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"}
		socket := filepath.Join(dir, "s")
		cmd := exec.Command("setpriv", append(user, path, "--listen", "unix:"+socket)...)
		cmd.Stderr = t.Output()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
		conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
		defer cancel()
		r, err := pb.NewDataPlaneProviderClient(conn).Probe(ctx, &pb.ProbeRequest{}, grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
		last := r.GetChecks()[len(r.GetChecks())-1]
		if r.GetVerdict() != pb.Verdict_VERDICT_UNSUPPORTED || !strings.Contains(last.GetRemedy(), "CAP_NET_ADMIN") {
			t.Errorf("%v: %v", user, r)
		}
		t.Logf("%v: %s: %s", user, last.GetId(), last.GetReason())
	}
}
