package l4

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/dataplane"
)

// Target is the plane to test: an executable, which is started with --listen
// unix:PATH in namespaces of the suite, killed, and started again.
type Target struct {
	Exec string
	Args []string // before those of the suite
	Env  []string // added to PATH, HOME, LANG and TMPDIR, as NAME=value
}

// Feature is something that not every plane has.
type Feature string

// The features that a profile may exclude.
const (
	IPv6            Feature = "ipv6"
	UDP             Feature = "udp"
	Intercept       Feature = "intercept"        // frontends at addresses of the host
	Loopback        Feature = "loopback"         // frontends at 127.x and ::1
	Containers      Feature = "containers"       // clients in other network namespaces
	Peer            Feature = "peer"             // getpeername shows the frontend
	Ends            Feature = "ends"             // connections to removed endpoints are ended
	ConntrackFree   Feature = "conntrack-free"   // connections take no entry of conntrack
	Affinity        Feature = "affinity"         // of clients
	Weights         Feature = "weights"          // of endpoints
	StickyDatagrams Feature = "sticky-datagrams" // an unconnected socket stays with its endpoint
	Silent          Feature = "silent"           // a VIP does not answer ping
)

// Features lists all features.
func Features() []Feature {
	return []Feature{IPv6, UDP, Intercept, Loopback, Containers, Peer, Ends, ConntrackFree, Affinity, Weights, StickyDatagrams, Silent}
}

// Profile says what a plane is not made for. What its Info claims cannot be
// excluded: the local checks of a plane with scope local, containers of one with
// scope forwarded.
type Profile struct {
	// Without are excluded features, each with the reason that is printed with
	// the checks that are skipped for it.
	Without map[Feature]string
	// Limit has the plane run out of room; nil: it has no limit that a setting makes small.
	Limit *Limit
	// Foreign puts something of somebody else where the plane works, such as a
	// rule or a program, and returns how to ask whether it is still there. It
	// and that run on a thread in the host's namespaces. Nil: not tested.
	Foreign func(Host) (still func() error, err error)
	// Damage are ways in which others may spoil what the plane has programmed,
	// such as a flush of its rules. Each runs like Foreign.
	Damage map[string]func(Host) error
}

// Limit is a configuration with which Services services of one endpoint each do
// not fit, but Fit of them do.
type Limit struct {
	Config        []byte
	Services, Fit int
}

// Host is where the plane runs.
type Host struct {
	InstanceID string // that the plane was configured with
	Cgroup     string // directory of the cgroup v2 that it is to lead; empty if it has no setting "cgroup"
}

// Options say how much to test.
type Options struct {
	// Config is a configuration that the plane takes, as JSON. If its schema has
	// a property "cgroup", the suite sets that.
	Config []byte
	// Scale multiplies the counts; 0.1 if 0.
	Scale float64
	// Seed of the random sequences; 0 takes one from the clock. It is in the evidence.
	Seed uint64
	// Patience bounds one Reconcile; 30 s if 0.
	Patience time.Duration
	// Answer is how long a client waits for one; 5 s if 0, which is for a machine
	// that has much else to do.
	Answer time.Duration
	// Only are ids or groups of checks; empty: all.
	Only []string
}

func (o Options) withDefaults() Options {
	if o.Scale == 0 {
		o.Scale = 0.1
	}
	if o.Seed == 0 {
		o.Seed = uint64(time.Now().UnixNano())
	}
	if o.Answer == 0 {
		o.Answer = 5 * time.Second
	}
	if o.Patience == 0 {
		o.Patience = 30 * time.Second
	}
	return o
}

func (o Options) wants(c Check) bool {
	return len(o.Only) == 0 || slices.Contains(o.Only, c.ID) || slices.Contains(o.Only, c.Group())
}

// Validate says what is wrong with what Run is given, without a look at the
// plane.
func Validate(t Target, p Profile, o Options) error {
	switch {
	case t.Exec == "":
		return errors.New("l4: give an executable: it is started in namespaces of the suite")
	case o.Scale < 0 || o.Patience < 0 || o.Answer < 0:
		return errors.New("l4: a scale or a time is below 0")
	case p.Limit != nil && (p.Limit.Fit < 1 || p.Limit.Services <= p.Limit.Fit):
		return fmt.Errorf("l4: limit of %d services, of which %d fit: some have to fit, and some not", p.Limit.Services, p.Limit.Fit)
	}
	for f, why := range p.Without {
		if !slices.Contains(Features(), f) {
			return fmt.Errorf("l4: %q is no feature: want one of %v", f, Features())
		}
		if strings.TrimSpace(why) == "" {
			return fmt.Errorf("l4: feature %s is excluded without a reason", f)
		}
	}
	for _, name := range o.Only {
		if !slices.ContainsFunc(Checks(), func(c Check) bool { return name == c.ID || name == c.Group() }) {
			return fmt.Errorf("l4: %q is neither a check nor a group of checks", name)
		}
	}
	return nil
}

// claims reports an exclusion that Info contradicts.
func (p Profile) claims(info dataplane.Info) error {
	if !slices.Contains(info.Layers, dataplane.L4) {
		return fmt.Errorf("l4: %s does not claim layer l4: there is no traffic to test", info.Name)
	}
	if _, without := p.Without[Containers]; without && slices.Contains(info.Scopes, dataplane.ScopeForwarded) {
		return fmt.Errorf("l4: %s claims scope forwarded, so %s cannot be excluded", info.Name, Containers)
	}
	return nil
}

// hasCgroup reports whether a plane's schema has a setting "cgroup".
func hasCgroup(info dataplane.Info) bool {
	var schema struct{ Properties map[string]any }
	_ = json.Unmarshal(info.ConfigSchema, &schema) // without one there is no setting
	_, has := schema.Properties["cgroup"]
	return has
}

// merge lays settings over a configuration.
func merge(config []byte, settings map[string]any) ([]byte, error) {
	all := make(map[string]any)
	if len(config) > 0 {
		if err := json.Unmarshal(config, &all); err != nil {
			return nil, fmt.Errorf("l4: configuration: %w", err)
		}
	}
	maps.Copy(all, settings)
	if len(all) == 0 {
		return config, nil
	}
	return json.Marshal(all)
}

// resolve finds the executable.
func (t Target) resolve() (Target, error) {
	path, err := exec.LookPath(t.Exec)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return t, fmt.Errorf("l4: %w", err)
	}
	t.Exec = path
	return t, nil
}

func file(fd int) *os.File { return os.NewFile(uintptr(fd), "socket") }
