package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

// Check is one demand on a provider.
type Check struct {
	ID     string // GROUP.NAME, stable
	Demand string // the sentence of the contract
	Remedy string // what to do if it fails
	// Exec says that it needs a process of its own, and so Target.Exec.
	Exec bool

	fresh bool // wants a provider that was just started
	spent bool // leaves one that is of no more use
	run   func(context.Context, *kit) error
}

// Group is the part of the id before the dot.
func (c Check) Group() string {
	group, _, _ := strings.Cut(c.ID, ".")
	return group
}

// Checks lists all checks in the order in which they run.
func Checks() []Check {
	var all []Check
	for _, group := range [][]Check{
		identityChecks(), probeChecks(), configChecks(), reconcileChecks(), contentChecks(), refusalChecks(), sessionChecks(),
		largeChecks(), concurrencyChecks(), streamChecks(), cleanupChecks(), crashChecks(), processChecks(),
	} {
		all = append(all, group...)
	}
	return all
}

// checkTime bounds a check beside the patience that it may need.
const checkTime = 20 * time.Second

// errSkip marks a check that does not apply. It wraps the reason.
var errSkip = errors.New("skipped")

func skipf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errSkip}, args...)...)
}

// failf is what a check saw and did not want. It may begin with the name of a call.
func failf(format string, args ...any) error { return fmt.Errorf(format, args...) }

// Run tests a provider. It returns when ctx ends, with what it has until then.
func Run(ctx context.Context, t Target, o Options) Report {
	return run(ctx, t, o, func(Check, Result) {})
}

// Test runs each check as a subtest.
func Test(t *testing.T, target Target) {
	t.Helper()
	TestWith(t, target, Options{})
}

// TestWith is Test with options.
func TestWith(t *testing.T, target Target, o Options) {
	t.Helper()
	report := run(t.Context(), target, o, func(c Check, r Result) {
		t.Run(c.ID, func(t *testing.T) {
			switch r.Outcome {
			case Failed:
				t.Errorf("demanded: %s\nseen: %s\nremedy: %s", r.Demand, r.Evidence, r.Remedy)
			case Skipped:
				t.Skip(r.Evidence)
			default:
				t.Log(r.Evidence)
			}
		})
	})
	if report.Error != "" {
		t.Error(report.Error)
	}
}

func run(ctx context.Context, t Target, o Options, each func(Check, Result)) Report {
	report := Report{Target: t.Endpoint + t.Exec}
	o = o.withDefaults()
	if err := Validate(t, o); err != nil {
		report.Error = err.Error()
		return report
	}
	if t.Exec != "" {
		path, err := exec.LookPath(t.Exec)
		if err == nil {
			path, err = filepath.Abs(path)
		}
		if err != nil {
			report.Error = fmt.Sprintf("conformance: %v", err)
			return report
		}
		t.Exec = path
	}
	dir, err := handshake.TempDir("conform-")
	if err != nil {
		report.Error = fmt.Sprintf("conformance: %v", err)
		return report
	}
	defer os.RemoveAll(dir)
	s := newSuite(t, o, dir)
	defer s.end()
	info, err := s.meet(ctx)
	if err != nil {
		report.Error = err.Error()
		return report
	}
	report.Name, report.Version = info.GetName(), info.GetVersion()
	for _, c := range Checks() {
		if !o.wants(c) {
			continue
		}
		r := s.check(ctx, c)
		if ctx.Err() != nil {
			report.Error = fmt.Sprintf("conformance: stopped at %s: %v", c.ID, ctx.Err())
			break
		}
		report.Results = append(report.Results, r)
		each(c, r)
	}
	return report
}

// check runs one check and says what came out.
func (s *suite) check(ctx context.Context, c Check) Result {
	start := time.Now()
	r := Result{ID: c.ID, Outcome: Passed, Demand: c.Demand}
	err := s.attempt(ctx, c, &r)
	r.Elapsed = time.Since(start)
	switch {
	case err == nil:
	case errors.Is(err, errSkip):
		r.Outcome, r.Evidence = Skipped, strings.TrimPrefix(err.Error(), errSkip.Error()+": ")
	default:
		r.Outcome, r.Remedy = Failed, c.Remedy
		r.Evidence = err.Error()
		if words := s.lastWords(); words != "" {
			r.Evidence += "; its last words: " + words
		}
		r.Evidence = clip(r.Evidence)
	}
	if r.Outcome == Failed || c.spent {
		s.drop() // nobody knows what it has now
	}
	return r
}

// clip bounds what a provider may have us print.
func clip(s string) string {
	const most = 2000
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + " …"
}

func (s *suite) attempt(ctx context.Context, c Check, r *Result) error {
	if (c.Exec || c.spent) && s.target.Exec == "" {
		return skipf("needs a process of its own: give an executable")
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime+2*s.options.Patience)
	defer cancel()
	if c.fresh {
		s.drop()
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	k := newKit(s)
	err := c.run(ctx, k)
	r.Evidence = k.evidence()
	return err
}
