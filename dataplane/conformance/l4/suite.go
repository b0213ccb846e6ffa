package l4

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/conformance"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

// Check is one demand on a plane.
type Check struct {
	ID     string // GROUP.NAME, stable
	Demand string
	Remedy string // what to do if it fails

	needs []Feature
	local bool // the client is on the host: needs scope local
	fresh bool // wants a process and a system without a past
	run   func(*rig) error
}

// Group is the part of the id before the dot.
func (c Check) Group() string {
	group, _, _ := strings.Cut(c.ID, ".")
	return group
}

// Checks lists all checks in the order in which they run.
func Checks() []Check {
	return slices.Concat(tableChecks(), refusalChecks(), datagramChecks(), balanceChecks(), changeChecks(), removalChecks(), clientChecks(), lifeChecks(), modelChecks())
}

// checkTime bounds a check beside the patience that it may need.
const checkTime = 60 * time.Second

// errSkip marks a check that does not apply. It wraps the reason.
var errSkip = errors.New("skipped")

func skipf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errSkip}, args...)...)
}

// Run tests a plane, as root. It returns when ctx ends, with what it has until
// then. If the plane has a setting "cgroup", this process is in another cgroup
// meanwhile, so that only one such Run may be under way.
func Run(ctx context.Context, t Target, p Profile, o Options) conformance.Report {
	return run(ctx, t, p, o, func(conformance.Result) {})
}

// Test runs each check as a subtest.
func Test(t *testing.T, target Target, p Profile, o Options) {
	t.Helper()
	report := run(t.Context(), target, p, o, func(r conformance.Result) {
		t.Run(r.ID, func(t *testing.T) {
			switch r.Outcome {
			case conformance.Failed:
				t.Errorf("demanded: %s\nseen: %s\nremedy: %s", r.Demand, r.Evidence, r.Remedy)
			case conformance.Skipped:
				t.Skip("skipped: " + r.Evidence)
			default:
				t.Logf("%v: %s", r.Elapsed.Round(time.Millisecond), r.Evidence)
			}
		})
	})
	if report.Error != "" {
		t.Error(report.Error)
	}
}

func run(ctx context.Context, t Target, p Profile, o Options, each func(conformance.Result)) (report conformance.Report) {
	report.Target = t.Exec
	fail := func(err error) conformance.Report {
		if report.Error == "" && err != nil {
			report.Error = err.Error()
		}
		return report
	}
	if err := Validate(t, p, o); err != nil {
		return fail(err)
	}
	t, err := t.resolve()
	if err != nil {
		return fail(err)
	}
	if uid := os.Geteuid(); uid != 0 {
		return fail(fmt.Errorf("l4: network namespaces need root, this is uid %d", uid))
	}
	s, err := newSuite(ctx, t, p, o.withDefaults())
	if err != nil {
		return fail(err)
	}
	defer func() {
		if err := s.close(); err != nil {
			report = fail(err)
		}
	}()
	report.Name, report.Version = s.provider.info.Name, s.provider.info.Version
	for _, c := range Checks() {
		if !o.wants(c) {
			continue
		}
		r := s.check(ctx, c)
		if ctx.Err() != nil {
			return fail(fmt.Errorf("l4: stopped at %s: %w", c.ID, ctx.Err()))
		}
		report.Results = append(report.Results, r)
		each(r)
	}
	return report
}

// suite is one run.
type suite struct {
	profile  Profile
	options  Options
	dir      string
	world    *world
	cgroup   *cgroup // nil: the plane has no such setting
	provider *provider
	config   []byte
	boots    uint64
	number   int // of addresses and services that were taken
}

func newSuite(ctx context.Context, t Target, p Profile, o Options) (s *suite, err error) {
	s = &suite{profile: p, options: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.dir, err = handshake.TempDir("l4-"); err != nil {
		return s, fmt.Errorf("l4: %w", err)
	}
	if s.world, err = newWorld(); err != nil {
		return s, err
	}
	s.provider = &provider{target: t, space: s.world.host, dir: s.dir, patience: o.Patience, config: dataplane.Config{
		InstanceID: fmt.Sprintf("traffic-%d", os.Getpid()), Node: "traffic", RunDir: s.dir, StateDir: s.dir,
	}}
	if err := s.provider.start(ctx); err != nil {
		return s, err
	}
	if err := p.claims(s.provider.info); err != nil {
		return s, err
	}
	s.config = o.Config
	if hasCgroup(s.provider.info) {
		s.provider.kill() // it belongs into the cgroup, as we do
		if s.cgroup, err = enterCgroup(); err != nil {
			return s, err
		}
		if s.config, err = merge(o.Config, map[string]any{"cgroup": s.cgroup.dir}); err != nil {
			return s, err
		}
	}
	return s, s.renew(ctx, s.config)
}

// renew begins with a process and a system without a past.
func (s *suite) renew(ctx context.Context, config []byte) error {
	p := s.provider
	if !p.running() {
		p.kill()
		if err := p.start(ctx); err != nil {
			return err
		}
	}
	p.config.JSON = config
	s.boots++
	p.session(s.boots)
	if p.starts > 1 {
		if err := p.cleanup(ctx); err != nil {
			return err
		}
		p.kill()
		if err := p.start(ctx); err != nil {
			return err
		}
	}
	return p.configure(ctx)
}

func (s *suite) close() error {
	var err error
	if s.provider != nil {
		if s.provider.running() {
			ctx, cancel := context.WithTimeout(context.Background(), startTime)
			err = s.provider.cleanup(ctx)
			cancel()
		}
		s.provider.kill()
	}
	if s.world != nil {
		s.world.close()
	}
	if s.cgroup != nil {
		err = errors.Join(err, s.cgroup.leave())
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// check runs one check and says what came out.
func (s *suite) check(ctx context.Context, c Check) conformance.Result {
	start := time.Now()
	r := conformance.Result{ID: c.ID, Outcome: conformance.Passed, Demand: c.Demand}
	g := &rig{suite: s}
	err := s.attempt(ctx, c, g)
	r.Elapsed = time.Since(start)
	switch {
	case err == nil:
		r.Evidence = strings.Join(g.notes, "; ")
	case errors.Is(err, errSkip):
		r.Outcome, r.Evidence = conformance.Skipped, strings.TrimPrefix(err.Error(), errSkip.Error()+": ")
	default:
		r.Outcome, r.Remedy = conformance.Failed, c.Remedy
		r.Evidence = strings.Join(append(g.notes, strings.ReplaceAll(err.Error(), "\n", "; ")), "; ")
		if words := s.provider.lastWords(); words != "" {
			r.Evidence += fmt.Sprintf("; the provider ended, its last words: %q", words)
		}
		r.Evidence = clip(r.Evidence)
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

// applies says why a check is not for this plane; nil if it is.
func (s *suite) applies(c Check) error {
	info := s.provider.info
	if c.local && !slices.Contains(info.Scopes, dataplane.ScopeLocal) {
		return skipf("the plane does not claim scope local")
	}
	for _, f := range c.needs {
		if why, without := s.profile.Without[f]; without {
			return skipf("%s: %s", f, why)
		}
		if f == IPv6 && !s.world.ipv6 {
			return skipf("this kernel has no IPv6")
		}
	}
	return nil
}

func (s *suite) attempt(ctx context.Context, c Check, g *rig) (err error) {
	if err := s.applies(c); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime+2*s.options.Patience)
	defer cancel()
	g.ctx = ctx
	if c.fresh || !s.provider.running() {
		if err := s.renew(ctx, s.config); err != nil {
			return err
		}
	}
	defer func() {
		g.release()
		// Nobody knows what a plane has that failed; another check begins without.
		if err != nil && !errors.Is(err, errSkip) {
			err = errors.Join(err, s.renew(ctx, s.config))
		}
	}()
	if err := c.run(g); err != nil {
		return err
	}
	if _, err := s.provider.apply(ctx, nil, nil); err != nil {
		return fmt.Errorf("afterwards, without services: %w", err)
	}
	return nil
}

// scaled is a count of full size at the scale of this run, at least least.
func (s *suite) scaled(full, least int) int { return max(least, int(float64(full)*s.options.Scale)) }

// next numbers what must not have been used before.
func (s *suite) next() int { s.number++; return s.number }

// vip is a VIP that no check had yet.
func (s *suite) vip(v6 bool, port uint16) netip.AddrPort {
	n := s.next()
	if v6 {
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte{0xfd, 0, 2, 0, 14: byte(n >> 8), 15: byte(n)}), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 200, byte(n >> 8), byte(n)}), port)
}
