package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/test/scale"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == measureArg {
		os.Exit(measure(os.Args[2:], os.Stdout))
	}
	ok, err := run(os.Args[1:], os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if !ok {
		os.Exit(1)
	}
}

// session is one run: what was asked for and what has been seen so far.
type session struct {
	dir     string
	out     io.Writer
	env     []string
	long    bool
	fuzzFor time.Duration
	budgets Budgets
	load    *Meter
	self    string // path of this program, which measures test binaries

	mu    sync.Mutex // guards all following fields
	tally Tally
	// failures repeats, before the closing line, what failed.
	failures []string
}

// run does all steps; ok reports whether tests ran and none failed. An error
// means that the run could not be carried out.
func run(args []string, out io.Writer) (ok bool, err error) {
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	var (
		dir      = flags.String("C", ".", "directory of the module")
		long     = flags.Bool("long", false, "full counts (FAIRLEAD_TEST_SCALE=1), long budgets, 60 s per fuzz target")
		only     = flags.String("only", "", "regular expression: only packages whose relative path matches")
		skipFuzz = flags.Bool("skip-fuzz", false, "run no fuzz target")
		fuzzFor  = flags.Duration("fuzztime", 0, "time per fuzz target (default 10s, 60s with -long)")
	)
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	match, err := regexp.Compile(*only)
	if err != nil {
		return false, fmt.Errorf("run: -only: %w", err)
	}
	s := &session{dir: *dir, out: &lockedWriter{w: out}, long: *long, fuzzFor: *fuzzFor}
	if s.fuzzFor == 0 {
		s.fuzzFor = 10 * time.Second
		if s.long {
			s.fuzzFor = time.Minute
		}
	}
	s.env = append(os.Environ(), scale.Env+"="+s.scale())
	if s.budgets, err = readBudgets(filepath.Join(*dir, "test", "budget.txt")); err != nil {
		return false, err
	}
	all, err := ListPackages(*dir)
	if err != nil {
		return false, err
	}
	if len(all) == 0 {
		return false, errors.New("run: the module has no package")
	}
	nested, err := ListNested(*dir, all[0].Module.Path)
	if err != nil {
		return false, err
	}
	other := func(p Package) bool { return !match.MatchString(p.Rel()) }
	chosen := slices.DeleteFunc(all, other)
	for d, pkgs := range nested {
		if nested[d] = slices.DeleteFunc(pkgs, other); len(nested[d]) == 0 {
			delete(nested, d)
		}
	}
	if len(chosen)+len(nested) == 0 {
		return false, fmt.Errorf("run: no package matches -only %q", *only)
	}
	if s.self, err = os.Executable(); err != nil {
		return false, fmt.Errorf("run: %w", err)
	}
	start := time.Now()
	var stop func()
	s.load, stop = StartMeter()
	defer stop()
	rows := s.plan(chosen)
	dirs := slices.Sorted(maps.Keys(nested))
	for _, d := range dirs {
		rows.Waiting = append(rows.Waiting, Group{Name: "the module in " + d, Dir: d, Packages: nested[d], Args: []string{"-p=1"}})
	}
	beside(func() {
		s.vet(*dir, chosen)
		for _, d := range dirs {
			s.vet(d, nested[d])
		}
		s.testGroups(rows.Computing)
	}, func() {
		s.testGroups(rows.Waiting)
	})
	timed := make(chan struct{})
	beside(func() {
		defer close(timed)
		s.testGroups(rows.Alone)
	}, func() {
		if !*skipFuzz {
			s.fuzzAll(chosen, timed)
		}
	})
	s.printf("\nscale %s, %.0f s\n", s.scale(), time.Since(start).Seconds())
	for _, f := range s.failures {
		s.printf("failed: %s\n", f)
	}
	if s.tally.Passed == 0 && s.tally.Failed == 0 {
		s.printf("no test ran\n")
	}
	s.printf("%s\n", s.tally)
	return s.tally.Failed == 0 && s.tally.Passed > 0, nil
}

// scale is the factor of this run. One that the environment names is kept, so
// that a soak can ask for more.
func (s *session) scale() string {
	if v := os.Getenv(scale.Env); v != "" {
		return v
	}
	if s.long {
		return "1"
	}
	return fmt.Sprint(scale.DefaultFactor)
}

func (s *session) printf(format string, args ...any) { fmt.Fprintf(s.out, format, args...) }

func (s *session) fail(format string, args ...any) {
	s.count(Tally{Failed: 1}, fmt.Sprintf(format, args...))
}

// count adds to what was seen, and to what is repeated at the end.
func (s *session) count(t Tally, failures ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.add(t)
	s.failures = append(s.failures, failures...)
}

// beside runs functions at the same time and returns when all have.
func beside(fns ...func()) {
	var all sync.WaitGroup
	for _, f := range fns {
		all.Go(f)
	}
	all.Wait()
}

func (s *session) vet(dir string, pkgs []Package) {
	if len(pkgs) == 0 {
		return
	}
	s.printf("== go vet\n")
	cmd := s.command(dir, append([]string{"vet"}, importPaths(pkgs)...)...)
	cmd.Stdout, cmd.Stderr = s.out, s.out
	if err := cmd.Run(); err != nil {
		s.fail("go vet: %v", err)
		return
	}
	s.count(Tally{Passed: 1})
}

// plan says what is tested when, and what this machine lacks for it.
func (s *session) plan(pkgs []Package) Rows {
	race := hasC()
	if !race {
		s.printf("-- no C compiler: the race detector is skipped (Debian packages gcc and libc6-dev)\n")
		s.count(Tally{Skipped: 1})
	}
	if os.Getuid() != 0 {
		s.printf("-- not root: tests that need network namespaces skip themselves\n")
	}
	return Plan(pkgs, race, func(p Package) time.Duration { return s.budgets.For(p.Rel(), s.long) })
}

func (s *session) testGroups(groups []Group) {
	for _, g := range groups {
		s.testGroup(g)
	}
}

// testGroup runs one go test. Results are never taken from the cache: a figure
// of yesterday's machine proves nothing about today's.
func (s *session) testGroup(g Group) {
	s.printf("== %s\n", g.Name)
	module := g.Packages[0].Module.Path
	report := &Reporter{Out: s.out, Module: module, Budgets: s.budgets, Long: s.long, Load: s.load}
	args := append([]string{"test", "-json", "-count=1", "-vet=off", "-exec=" + s.self + " " + measureArg, "-timeout=" + s.timeout(g).String()}, g.Args...)
	cmd := s.command(cmp.Or(g.Dir, s.dir), append(args, importPaths(g.Packages)...)...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		s.fail("go test of %s: %v", g.Name, err)
		return
	}
	cmd.Stderr = s.out
	if err := cmd.Start(); err != nil {
		s.fail("go test of %s: %v", g.Name, err)
		return
	}
	readErr := report.Read(stdout)
	err = cmd.Wait()
	var failures []string
	for _, name := range report.Lost() {
		failures = append(failures, name+": ended without a result")
	}
	s.count(report.Tally, append(failures, report.Failures...)...)
	if report.Tally.Failed == 0 && err != nil {
		s.fail("go test of %s: %v", g.Name, err) // nobody else explains it
	}
	if readErr != nil {
		s.fail("%v", readErr)
	}
}

// timeout ends a package that hangs. It is a multiple of the largest budget of
// the group: the budget says what is wrong, the timeout only that nothing moves,
// and it counts by the clock, however busy the machine is.
func (s *session) timeout(g Group) time.Duration {
	var most time.Duration
	for _, p := range g.Packages {
		most = max(most, s.budgets.For(p.Rel(), s.long))
	}
	return 4*most + time.Minute
}

// fuzzAll runs every target, each on one CPU and at a lower priority. One CPU is
// left free until timed is closed: what is tested at the same time waits most of
// the time, and must not wait for this.
func (s *session) fuzzAll(pkgs []Package, timed <-chan struct{}) {
	type job struct {
		pkg    Package
		target string
		out    []byte
		err    error
		done   chan struct{}
	}
	var jobs []*job
	for _, p := range pkgs {
		targets, err := p.FuzzTargets()
		if err != nil {
			s.fail("%v", err)
			continue
		}
		for _, target := range targets {
			jobs = append(jobs, &job{pkg: p, target: target, done: make(chan struct{})})
		}
	}
	if len(jobs) == 0 {
		return
	}
	s.printf("== fuzz targets, %s each\n", s.fuzzFor)
	waiting := make(chan *job, len(jobs))
	for _, j := range jobs {
		waiting <- j
	}
	close(waiting)
	for i, cpus := 0, runtime.NumCPU(); i < cpus; i++ {
		go func() {
			if i > 0 && i == cpus-1 {
				<-timed
			}
			for j := range waiting {
				j.out, j.err = s.fuzz(j.pkg, j.target, s.fuzzFor)
				close(j.done)
			}
		}()
	}
	for _, j := range jobs {
		<-j.done
		if j.err != nil {
			s.fail("%s.%s: %v", j.pkg.Rel(), j.target, j.err)
			s.printf("FAIL %s %s\n%s", j.pkg.Rel(), j.target, indent(j.out))
			continue
		}
		s.count(Tally{Passed: 1})
		s.printf("ok   %-38s %s  %s\n", j.pkg.Rel(), j.target, lastStats(j.out))
	}
}

func (s *session) command(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = s.env
	return cmd
}

func readBudgets(path string) (Budgets, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	defer f.Close()
	return ParseBudgets(f)
}

func importPaths(pkgs []Package) []string {
	paths := make([]string, len(pkgs))
	for i, p := range pkgs {
		paths[i] = p.ImportPath
	}
	return paths
}

func indent(out []byte) string {
	var b strings.Builder
	for line := range strings.Lines(string(out)) {
		b.WriteString("     " + line)
	}
	return b.String()
}
