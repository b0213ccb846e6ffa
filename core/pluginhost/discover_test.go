package pluginhost

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/dataplane"
)

func find1(t *testing.T, d Discovery, name string) Candidate {
	t.Helper()
	c, ok := d.Find(name)
	if !ok {
		t.Fatalf("%s is not in %+v", name, d)
	}
	return c
}

func TestFirstDirectoryWinsAndTheOthersAreShown(t *testing.T) {
	r := newRig(t)
	second := t.TempDir()
	beside := t.TempDir()
	first := r.install("l7", behaviour{})
	other := install(t, second, "l7", behaviour{})
	install(t, beside, "ebpf", behaviour{})
	d := Discover(Search{Dirs: []string{r.dir, second, r.dir, "/nowhere/at/all"}, Binary: filepath.Join(beside, "fairlead")})
	if len(d.Candidates) != 3 {
		t.Fatalf("found %+v", d.Candidates)
	}
	if c := find1(t, d, "l7"); c.Path != first || !c.Usable() {
		t.Errorf("l7 is %+v", c)
	}
	for _, c := range d.Candidates {
		if c.Path == other && (c.ShadowedBy != first || c.Usable()) {
			t.Errorf("the second one is %+v", c)
		}
	}
	find1(t, d, "ebpf")
	if len(d.Problems) != 1 || !strings.Contains(d.Problems[0], "/nowhere/at/all does not exist") {
		t.Errorf("problems: %q", d.Problems)
	}
}

// A refused one is listed with the reason and the remedy, and hides later ones
// all the same.
func TestRefused(t *testing.T) {
	root := os.Geteuid() == 0
	for _, test := range []struct {
		name    string
		spoil   func(path string) error
		reason  string
		remedy  string
		asRoot  bool
		oddName string
	}{
		{name: "not executable", spoil: func(p string) error { return rewrite(p, "#!/bin/sh\n", 0o644) }, reason: "not executable", remedy: "chmod 0755"},
		{name: "text", spoil: func(p string) error { return rewrite(p, "hello", 0o755) }, reason: "neither an ELF program nor a script", remedy: "install a build"},
		{name: "empty", spoil: func(p string) error { return rewrite(p, "", 0o755) }, reason: "neither an ELF program nor a script"},
		{name: "no interpreter", spoil: func(p string) error { return rewrite(p, "#!/no/such/shell\n", 0o755) }, reason: "interpreter", remedy: "install it"},
		{name: "nameless interpreter", spoil: func(p string) error { return rewrite(p, "#! \n", 0o755) }, reason: "names no interpreter"},
		{name: "broken ELF", spoil: func(p string) error { return rewrite(p, "\x7fELF\x02\x01\x01", 0o755) }, reason: "broken ELF"},
		{name: "directory", spoil: func(p string) error { return errorsOf(os.Remove(p), os.Mkdir(p, 0o755)) }, reason: "no regular file"},
		{name: "pipe", spoil: func(p string) error { return errorsOf(os.Remove(p), syscall.Mkfifo(p, 0o755)) }, reason: "no regular file"},
		{name: "broken link", spoil: func(p string) error { return errorsOf(os.Remove(p), os.Symlink("/nowhere", p)) }, reason: "leads nowhere", remedy: "install the plugin again"},
		{name: "writable", asRoot: true, spoil: func(p string) error { return errorsOf(rewrite(p, "#!/bin/sh\n", 0o755), os.Chmod(p, 0o775)) }, reason: "mode 0775", remedy: "chmod go-w"},
		{name: "owner", asRoot: true, spoil: func(p string) error { return errorsOf(rewrite(p, "#!/bin/sh\n", 0o755), os.Chown(p, 65534, 65534)) }, reason: "belongs to user 65534", remedy: "chown root"},
		{name: "directory writable", asRoot: true, spoil: func(p string) error { return os.Chmod(filepath.Dir(p), 0o777) }, reason: "mode 0777", remedy: "chmod go-w"},
		{name: "directory of another", asRoot: true, spoil: func(p string) error { return os.Chown(filepath.Dir(p), 65534, -1) }, reason: "belongs to user 65534"},
		{name: "manifest writable", asRoot: true, spoil: func(p string) error {
			return errorsOf(os.WriteFile(p+ManifestSuffix, nil, 0o644), os.Chmod(p+ManifestSuffix, 0o666))
		}, reason: "mode 0666"},
		{name: "name", oddName: "L7.bak", spoil: func(string) error { return nil }, reason: `"L7.bak" is no name`, remedy: "lower-case letter"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.asRoot && !root {
				t.Skip("the rule is for an agent that runs as root")
			}
			r := newRig(t)
			name := "x"
			if test.oddName != "" {
				name = test.oddName
			}
			path := r.install(name, behaviour{})
			if err := test.spoil(path); err != nil {
				t.Fatal(err)
			}
			second := t.TempDir()
			install(t, second, name, behaviour{})
			d := Discover(Search{Dirs: []string{r.dir, second}})
			c := find1(t, d, name)
			if c.Path != path || c.Usable() || c.Refused == nil {
				t.Fatalf("found %+v", c)
			}
			if !strings.Contains(c.Refused.Reason, test.reason) || !strings.Contains(c.Refused.Remedy, test.remedy) {
				t.Errorf("refused with %q, %q", c.Refused.Reason, c.Refused.Remedy)
			}
		})
	}
}

// rewrite replaces the file: the old one is the test binary itself.
func rewrite(path, text string, mode os.FileMode) error {
	return errorsOf(os.Remove(path), os.WriteFile(path, []byte(text), mode))
}

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestOwnerOfTheAgentIsTrusted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the rule is for an agent that runs as root")
	}
	r := newRig(t)
	path := r.script("x", "exit 0\n")
	agent := filepath.Join(t.TempDir(), "fairlead")
	if err := errorsOf(os.WriteFile(agent, nil, 0o755), os.Chown(agent, 65534, -1), os.Chown(path, 65534, -1)); err != nil {
		t.Fatal(err)
	}
	if c := find1(t, Discover(Search{Dirs: []string{r.dir}, Binary: agent}), "x"); !c.Usable() {
		t.Errorf("refused: %v", c.Refused)
	}
	if c := find1(t, Discover(Search{Dirs: []string{r.dir}}), "x"); c.Usable() {
		t.Error("usable for an agent of root")
	}
}

// manifest writes one for the file at path, with changes.
func manifest(t *testing.T, path string, change func(m map[string]any)) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]any{
		"name": strings.TrimPrefix(filepath.Base(path), "fairlead-dataplane-"), "version": "1.0.0",
		"sha256": fmt.Sprintf("%x", sha256.Sum256(text)), "capabilities": []string{"CAP_NET_ADMIN", "cap_bpf"},
	}
	change(m)
	out, err := json.Marshal(m)
	if err == nil {
		err = os.WriteFile(path+ManifestSuffix, out, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestManifestErrors(t *testing.T) {
	for name, test := range map[string]struct {
		change func(m map[string]any)
		want   string
	}{
		"fine":               {func(map[string]any) {}, ""},
		"hash":               {func(m map[string]any) { m["sha256"] = strings.Repeat("00", 32) }, "its manifest says 0000"},
		"short hash":         {func(m map[string]any) { m["sha256"] = "00" }, "want 64 hexadecimal digits"},
		"typing error":       {func(m map[string]any) { m["sha265"] = m["sha256"] }, "sha265"},
		"name":               {func(m map[string]any) { m["name"] = "y" }, `name is "y"`},
		"no version":         {func(m map[string]any) { delete(m, "version") }, "version is missing"},
		"no capabilities":    {func(m map[string]any) { delete(m, "capabilities") }, "capabilities is missing"},
		"unknown capability": {func(m map[string]any) { m["capabilities"] = []string{"CAP_FLY"} }, `"CAP_FLY" is no capability`},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			manifest(t, r.install("x", behaviour{}), test.change)
			c := find1(t, Discover(r.cfg.Search), "x")
			if test.want == "" {
				if !c.Usable() || c.Manifest == nil {
					t.Errorf("found %+v", c)
				}
				return
			}
			if c.Usable() || !strings.Contains(c.Refused.Reason, test.want) {
				t.Errorf("refused: %v", c.Refused)
			}
		})
	}
}

// The version of the manifest is that of the plugin.
func TestManifestVersion(t *testing.T) {
	r := newRig(t)
	manifest(t, r.install("good", behaviour{Version: "1.0.1"}), func(map[string]any) {})
	if f := r.find("good"); f.Err == nil || !strings.Contains(f.Err.Error(), "version 1.0.1, and its manifest says 1.0.0") {
		t.Errorf("error is %v", f.Err)
	}
}

// What runs is what was checked, though another file is at its path by then. A
// second start checks anew.
func TestSwappedFileDoesNotRun(t *testing.T) {
	r := newRig(t)
	path := r.install("good", behaviour{})
	manifest(t, path, func(map[string]any) {})
	img, refused := openImage(path, "good", newTrust(""))
	if refused != nil {
		t.Fatal(refused)
	}
	defer img.close()
	marker := filepath.Join(t.TempDir(), "evil")
	if err := rewrite(path, "#!/bin/sh\necho > "+marker+"\n", 0o755); err != nil {
		t.Fatal(err)
	}
	h := r.host()
	i, err := h.launch(t.Context(), img, hosting{timeout: patience}, true)
	if err != nil {
		t.Fatal(err)
	}
	i.stop(r.cfg.Timing)
	if _, err := os.Stat(marker); err == nil {
		t.Error("the other file ran")
	}
	if _, err := h.open(t.Context(), "good", true); err == nil || !strings.Contains(err.Error(), "its manifest says") {
		t.Errorf("the next start: %v", err)
	}
}

// A script runs from the checked bytes, too, and keeps its name.
func TestScript(t *testing.T) {
	r := newRig(t)
	target := install(t, t.TempDir(), "good", behaviour{})
	path := r.script("good", `exec `+target+"\n")
	manifest(t, path, func(map[string]any) {})
	if f := r.find("good"); f.Err != nil || f.Info.Name != "good" || f.Report.Verdict != dataplane.Supported {
		t.Errorf("found %+v", f)
	}
}

// The child gets the capabilities of the manifest and no other.
func TestCapabilities(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to have capabilities to take away")
	}
	for name, test := range map[string]struct {
		capabilities []string
		want         string
	}{
		"two":  {[]string{"CAP_NET_ADMIN", "CAP_BPF"}, "0000008000001000"},
		"none": {[]string{}, "0000000000000000"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, "good")
			out := filepath.Join(t.TempDir(), "told")
			path := r.install("good", behaviour{Out: out})
			manifest(t, path, func(m map[string]any) { m["capabilities"] = test.capabilities })
			before := rights()
			r.start()
			r.nextReady()
			var got told
			text, err := os.ReadFile(out)
			if err == nil {
				err = json.Unmarshal(text, &got)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd"} {
				_, rest, _ := strings.Cut(got.Status, set+":\t")
				value, _, _ := strings.Cut(rest, "\n")
				if value != test.want && set != "CapInh" {
					t.Errorf("%s is %s, want %s", set, value, test.want)
				}
			}
			if after := rights(); after != before {
				t.Errorf("the agent's own were %s and are %s", before, after)
			}
		})
	}
}

func TestParseCapabilities(t *testing.T) {
	set, err := parseCapabilities([]string{"CAP_CHOWN", "cap_checkpoint_restore"})
	if err != nil || set != 1|1<<40 {
		t.Errorf("set is %x, %v", uint64(set), err)
	}
}
