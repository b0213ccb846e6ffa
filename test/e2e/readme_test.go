package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/transcript"
)

// step is one command that a document shows, and what it shows of its output.
type step struct {
	command string
	output  []string // … is any text
}

// readmeSteps are the console blocks of one section.
func readmeSteps(document, section string) []step {
	var steps []step
	inSection, inBlock := false, false
	for line := range strings.Lines(document) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "## "):
			inSection = line == "## "+section
		case !inSection:
		case strings.HasPrefix(line, "```"):
			inBlock = line == "```console"
		case !inBlock:
		case strings.HasPrefix(line, "$ "):
			steps = append(steps, step{command: line[2:]})
		case len(steps) > 0:
			last := &steps[len(steps)-1]
			last.output = append(last.output, line)
		}
	}
	return steps
}

// missing returns the first line that an output lacks, "" if it has all in this
// order. A line that is only … stands for any number of lines, and is otherwise
// any text; blanks count as one.
func (s step) missing(output string) string {
	var lines []string
	for line := range strings.Lines(output) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	skip := false
	for _, want := range s.output {
		want = strings.Join(strings.Fields(want), " ")
		if want == "…" {
			skip = true
			continue
		}
		parts := strings.Split(want, "…")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		pattern := regexp.MustCompile("^" + strings.Join(parts, ".*") + "$")
		at := slices.IndexFunc(lines, pattern.MatchString)
		if at < 0 || at > 0 && !skip {
			return want
		}
		lines, skip = lines[at+1:], false
	}
	if len(lines) > 0 && !skip && len(s.output) > 0 {
		return "the end, and not: " + lines[0]
	}
	return ""
}

func TestStepMissing(t *testing.T) {
	s := step{output: []string{"A  B…", "…", "c … e"}}
	for output, want := range map[string]string{
		"A B x\nc d e\n":           "",
		"A    B\nx\ny\nc d  d e\n": "",
		"x\nA B\nc d e\n":          "A B…",
		"A B\nc d f\n":             "c … e",
		"A B\nc d e\nf\n":          "the end, and not: f",
		"":                         "A B…",
	} {
		if got := s.missing(output); got != want {
			t.Errorf("%q lacks %q, want %q", output, got, want)
		}
	}
	if got := (step{}).missing("anything\n"); got != "" {
		t.Errorf("nothing is promised, and %q is missing", got)
	}
}

// repeatable are the commands that only look, or do the same again, and may so be asked
// until what was done before has taken effect.
var repeatable = regexp.MustCompile(`^(for .*)?(curl|bin/fairlead (members|services|endpoints|kv|raft status))( |$)`)

func TestRepeatable(t *testing.T) {
	for command, want := range map[string]bool{
		"for i in 1 2; do curl -s http://127.0.0.1/; done": true, "curl -s http://127.0.0.1/": true, "bin/fairlead members": true,
		"bin/fairlead endpoints web": true, "bin/fairlead raft status": true, "kill -9 12345": false, "bin/fairlead register hello --port 80": false,
	} {
		if got := repeatable.MatchString(command); got != want {
			t.Errorf("%s is repeated: %v, want %v", command, got, want)
		}
	}
}

// The first ten minutes of the README, as they stand there, against a real
// cluster of `fairlead dev`: each command succeeds and prints what is shown.
func TestReadme(t *testing.T) {
	document, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	steps := readmeSteps(string(document), "First ten minutes")
	dir, err := os.MkdirTemp("", "fl-") // short: the paths of sockets begin with it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &reader{t: t, dir: dir}
	r.install()
	own := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer own.Close()
	r.replace = []string{"127.0.0.1:9000", own.Listener.Addr().String()}

	ran := map[string]int{}
	for _, s := range steps {
		ran[strings.Join(strings.Fields(s.command)[:2], " ")]++
		switch s.command {
		case "make dev":
			r.holdMake("dev", "bin/fairlead dev")
			r.startDev()
		case "make demo":
			r.holdMake("demo", "bin/fairlead demo")
			await.Steadily(r.t, func() error { return r.once(step{"bin/fairlead demo --duration 5s", s.output}) })
		default:
			r.run(s)
		}
	}
	for _, want := range []string{"make dev", "for i", "kill -9", "bin/fairlead endpoints", "bin/fairlead register", "make demo"} {
		if ran[want] == 0 {
			t.Errorf("the README does not show %s …", want)
		}
	}
	r.stopDev()
	for _, name := range []string{"run", "t"} {
		if left, err := os.ReadDir(filepath.Join(dir, name)); err != nil || len(left) != 0 {
			t.Errorf("%d things are left in %s, %v", len(left), name, err)
		}
	}
}

// reader is somebody who does what the README says.
type reader struct {
	t       *testing.T
	dir     string
	replace []string // old, new, old, new: what is different on this host
	dev     *exec.Cmd
	out     transcript.Buffer
}

// install makes bin what `make build` makes it.
func (r *reader) install() {
	r.t.Helper()
	for _, name := range []string{"run", "t"} {
		if err := os.Mkdir(filepath.Join(r.dir, name), 0o700); err != nil {
			r.t.Fatal(err)
		}
	}
	bin := filepath.Join(r.dir, "bin")
	if installed != "" {
		if err := os.Symlink(filepath.Dir(installed), bin); err != nil {
			r.t.Fatal(err)
		}
		return
	}
	for _, name := range []string{"fairlead", "fairlead-dataplane-l7"} {
		if err := build(filepath.Join(bin, name), "../../cmd/"+name); err != nil {
			r.t.Fatal(err)
		}
	}
}

// holdMake checks that a target of the Makefile ends with what is run in its place.
func (r *reader) holdMake(target, command string) {
	r.t.Helper()
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		r.t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^` + target + `: setup build\b.*\n\t` + command + `$`).Match(makefile) {
		r.t.Errorf("make %s does not build and run %s", target, command)
	}
}

func (r *reader) command(ctx context.Context, text string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-c", text)
	cmd.Dir = r.dir
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "FAIRLEAD_") {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	cmd.Env = append(cmd.Env, "XDG_RUNTIME_DIR="+filepath.Join(r.dir, "run"), "TMPDIR="+filepath.Join(r.dir, "t"))
	return cmd
}

// startDev starts the cluster and learns what is where.
func (r *reader) startDev() {
	r.t.Helper()
	r.dev = r.command(context.Background(), "exec bin/fairlead dev -o json")
	r.dev.Stdout, r.dev.Stderr = &r.out, os.Stderr
	if err := r.dev.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { // all of its children end with it
		_ = r.dev.Process.Kill()
		_ = r.dev.Wait()
	})
	var cluster struct {
		Nodes     []struct{ Proxy string }
		Instances []struct {
			ID  string
			PID int
		}
	}
	r.eventually("the cluster is up", func() error {
		line, _, found := strings.Cut(r.out.String(), "\n")
		if !found {
			return fmt.Errorf("dev printed %q", line)
		}
		return json.Unmarshal([]byte(line), &cluster)
	})
	for _, i := range cluster.Instances {
		if i.ID == "web-2" {
			r.replace = append(r.replace, "12345", fmt.Sprint(i.PID))
		}
	}
	r.replace = append(r.replace, "http://127.0.0.1:8081/", cluster.Nodes[0].Proxy)
}

func (r *reader) stopDev() {
	r.t.Helper()
	if err := r.dev.Process.Signal(syscall.SIGINT); err != nil {
		r.t.Fatal(err)
	}
	if err := r.dev.Wait(); err != nil {
		r.t.Errorf("dev ended with %v", err)
	}
}

// run does one step.
func (r *reader) run(s step) {
	r.t.Helper()
	once := func() error { return r.once(s) }
	if repeatable.MatchString(s.command) {
		r.eventually(s.command, once)
	} else if err := once(); err != nil {
		r.t.Fatal(err)
	}
}

// once does a step, whatever was done before.
func (r *reader) once(s step) error {
	here := strings.NewReplacer(r.replace...)
	want := step{output: slices.Clone(s.output)}
	for i := range want.output {
		want.output[i] = here.Replace(want.output[i])
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := r.command(ctx, here.Replace(s.command))
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s%s", s.command, err, out.String(), errs.String())
	}
	if lacks := want.missing(out.String()); lacks != "" {
		return fmt.Errorf("%s: the output lacks %q:\n%s", s.command, lacks, out.String())
	}
	return nil
}

func (r *reader) eventually(what string, f func() error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			r.t.Fatalf("waited in vain until %s: %v", what, err)
		case <-tick.C:
		}
	}
}
