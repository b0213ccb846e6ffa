package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/runnable"
	"github.com/fairlead/fairlead/test/scale"
)

// layoutVersion is where the version of the plane's layout is written.
const layoutVersion = "../../plugins/ebpf/internal/layout/doc.go"

// planeOfLayout builds the plane as if its layout had another version, so that it
// shares no map with that of the sources, and returns the version.
func planeOfLayout(t *testing.T, program string, later int) int {
	t.Helper()
	source, err := os.ReadFile(layoutVersion)
	if err != nil {
		t.Fatal(err)
	}
	pattern := regexp.MustCompile(`(?m)^const Version = (\d+)$`)
	found := pattern.FindSubmatch(source)
	if found == nil {
		t.Fatalf("%s does not say the version of the layout", layoutVersion)
	}
	version, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	changed := filepath.Join(dir, "doc.go")
	text := pattern.ReplaceAll(source, fmt.Appendf(nil, "const Version = %d", version+later))
	original, err := filepath.Abs(layoutVersion)
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: changed}})
	if err == nil {
		err = errors.Join(os.WriteFile(changed, text, 0o644), os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", filepath.Join(plugins, program), "../../cmd/fairlead-dataplane-ebpf")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return version + later
}

// layouts lists the layouts that are pinned for the agent.
func (l *led) layouts() (names []string) {
	found, _ := filepath.Glob(fmt.Sprintf("/proc/%d/root/sys/fs/bpf/fairlead/*/layout-*", l.mounts))
	for _, path := range found {
		names = append(names, filepath.Base(path))
	}
	return names
}

// TestEBPFUpgraded: the plane is replaced by one with another layout under 500
// connects a second, in full three times in a row: no connect fails, and the old maps go.
func TestEBPFUpgraded(t *testing.T) {
	f := newFleet(t, 1)
	a := f.agents[0]
	var programs []string
	var versions []int
	for later := range scale.N(3) {
		programs = append(programs, fmt.Sprint("ebpf+", later+1))
		versions = append(versions, planeOfLayout(t, programs[later], later+1))
	}
	l := newLed(a, webAt(instanceOfWeb("a", a.url(9001)), instanceOfWeb("b", a.url(9002))))
	a.runs(9001, "a")
	a.runs(9002, "b")
	a.start()
	plane := l.runsWeb(1)
	load := l.dials("--to", vipOfWeb, "--rate", "500")
	load.answers(a, "a", "b")
	for i, program := range programs {
		was := len(load.dials())
		next := a.pluginDir() + ".next"
		err := runnable.Copy(filepath.Join(plugins, program), next)
		if err == nil { // in one step, as packages do
			err = os.Rename(next, filepath.Join(a.pluginDir(), "fairlead-dataplane-ebpf"))
		}
		if err != nil {
			t.Fatal(err)
		}
		lives := len(a.entries("plugin is ready"))
		kill(t, plane.PID, syscall.SIGKILL)
		plane = l.runsWeb(lives + 1)
		want := fmt.Sprintf("layout-%d-", versions[i])
		a.eventually(20*time.Second, "the maps of the new layout, and no others", func() error {
			now := l.layouts()
			if len(now) != 1 || !strings.HasPrefix(now[0], want) {
				return fmt.Errorf("%v, want one %s…", now, want)
			}
			return nil
		})
		a.eventually(10*time.Second, "connects by the new programs", func() error {
			if n := len(load.dials()); n < was+500 {
				return fmt.Errorf("%d of 500", n-was)
			}
			return nil
		})
		load.answers(a, "a", "b")
	}
	load.stopped(t, "a", "b")
}

// stopped ends an application, and fails the test if a connect failed or somebody
// else answered.
func (d *dialer) stopped(t *testing.T, names ...string) {
	t.Helper()
	d.Signal(syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := d.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	known := make(map[string]bool)
	for _, name := range names {
		known[name] = true
	}
	failed, all := 0, d.dials()
	for _, one := range all {
		if !known[one.name] {
			failed++
			t.Logf("failed: %+v", one)
		}
	}
	t.Logf("%d connects", len(all))
	if failed > 0 {
		t.Errorf("%d of %d connects failed", failed, len(all))
	}
}
