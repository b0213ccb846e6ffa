package ebpf

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/datapath"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/host"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/layout"
)

// Provider is the data plane. Its methods may be called from any goroutine.
type Provider struct {
	version string // what Info says
	log     *slog.Logger
	path    atomic.Pointer[testDial] // what Health dials; nil: nothing is there
	doubt   chan struct{}            // asks the keeper to look at once

	mu       sync.Mutex
	config   dataplane.Config
	settings settings
	place    place              // resolved from settings
	data     *datapath.Datapath // nil: nothing is in the kernel of this process
	keeper   *keeper            // nil: not configured
	own      *ownService        // nil likewise

	known    bool // data holds all that the last snapshot said and nothing else
	state    dataplane.State
	last     *dataplane.Snapshot // the last that was applied
	statuses map[dataplane.Key]dataplane.ServiceStatus
	full     bool // something did not fit
	ends     endings
	watchers map[*watcher]bool
	flows    *flowReader // nil: nobody watches
}

var (
	_ dataplane.Provider = (*Provider)(nil)
	_ dataplane.Stateful = (*Provider)(nil)
	_ dataplane.Watcher  = (*Provider)(nil)
	_ dataplane.Counting = (*Provider)(nil)
)

// place is where the provider works.
type place struct {
	root          string // of the cgroup hierarchy
	cgroup, bpffs string
	home          uint64
	inside        bool // this process is in the tree of cgroup
}

// New returns a provider of this version that has not touched anything yet.
func New(version string) *Provider {
	return &Provider{
		version: version, log: slog.New(slog.DiscardHandler), doubt: make(chan struct{}, 1),
		statuses: make(map[dataplane.Key]dataplane.ServiceStatus), watchers: make(map[*watcher]bool),
	}
}

// UseLogger implements sdk.Logging.
func (p *Provider) UseLogger(log *slog.Logger) { p.log = log }

// Info says what the provider is.
func (p *Provider) Info() dataplane.Info {
	return dataplane.Info{
		Name: "ebpf", Version: p.version, Vendor: "Fairlead",
		Layers: []dataplane.Layer{dataplane.L4}, Scopes: []dataplane.Scope{dataplane.ScopeLocal}, ConfigSchema: []byte(schema),
	}
}

// Configure takes where to work, and goes on with what is there of the instance.
func (p *Provider) Configure(_ context.Context, c dataplane.Config) ([]dataplane.Diagnostic, error) {
	s, err := parseSettings(c.JSON)
	if err != nil {
		return nil, err
	}
	at, err := resolve(s)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	same := p.config.InstanceID == c.InstanceID && p.place == at
	if !same {
		if err := p.move(c, s, at); err != nil {
			return nil, fmt.Errorf("%w: ebpf: %w", dataplane.ErrFailed, err)
		}
	}
	if same && p.settings != s {
		p.known = false // what did not fit may fit
	}
	p.config, p.settings, p.place = c, s, at
	if p.data != nil {
		p.startKeeper()
	}
	return at.notes(s), nil
}

// notes say what a place means that nobody may have thought of.
func (at place) notes(s settings) (notes []dataplane.Diagnostic) {
	if !at.inside {
		notes = append(notes, dataplane.Diagnostic{
			Path: "cgroup", Message: fmt.Sprintf("this process is not in %s: its sockets are not led, and Health cannot dial", at.cgroup),
		})
	}
	if part, err := host.IsPart(at.root); s.Cgroup == "" && err == nil && part {
		notes = append(notes, dataplane.Diagnostic{Path: "cgroup", Message: fmt.Sprintf("%s: %v", at.root, errPart)})
	}
	return notes
}

// resolve finds the places that settings leave open.
func resolve(s settings) (place, error) {
	mounts, err := host.Mounts()
	if err != nil {
		return place{}, fmt.Errorf("%w: ebpf: %w", dataplane.ErrFailed, err)
	}
	root, err := host.Cgroup2(mounts)
	if err != nil {
		return place{}, fmt.Errorf("%w: ebpf: %w: mount it: `mount -t cgroup2 none /sys/fs/cgroup/unified`", dataplane.ErrFailed, err)
	}
	at := place{root: root, cgroup: s.Cgroup, bpffs: s.BPFFS}
	if at.cgroup == "" {
		at.cgroup = root
	}
	if at.bpffs == "" {
		at.bpffs = host.DefaultBPFFS
		if err := host.MountBPFFS(at.bpffs); err != nil {
			return place{}, fmt.Errorf("%w: ebpf: %w", dataplane.ErrFailed, err)
		}
	}
	if !host.IsBPFFS(at.bpffs) {
		return place{}, fmt.Errorf("%w: ebpf: bpffs %s is no BPF file system: mount one: `mount -t bpf bpf %s`", dataplane.ErrInvalid, at.bpffs, at.bpffs)
	}
	if at.inside, err = host.Inside(mounts, at.cgroup); err != nil {
		return place{}, fmt.Errorf("%w: ebpf: %w", dataplane.ErrFailed, err)
	}
	if at.home, err = host.Cookie(); err != nil {
		return place{}, fmt.Errorf("%w: ebpf: %w", dataplane.ErrFailed, err)
	}
	return at, nil
}

// move leaves one place for another. What a former process of the instance left at
// the new one is gone on with; else nothing is made there before it is needed. What
// the instance had elsewhere is removed.
func (p *Provider) move(c dataplane.Config, s settings, at place) error {
	was := datapath.Found{Root: datapath.Root(p.place.bpffs, p.config.InstanceID), Instance: p.config.InstanceID}
	elsewhere := p.data != nil && p.config.InstanceID == c.InstanceID && p.place.bpffs != at.bpffs
	if !datapath.Exists(at.bpffs, c.InstanceID) {
		p.leave()
	} else if err := p.begin(c.InstanceID, s.first(), at); err != nil {
		return err
	}
	if !elsewhere {
		return nil
	}
	var err error
	for _, object := range was.Objects() {
		err = errors.Join(err, was.RemoveObject(object))
	}
	if err != nil {
		p.log.Warn("what was pinned elsewhere is not all removed", "root", was.Root, "error", err)
	}
	return nil
}

// begin opens the data path of an instance, and only then leaves the one before.
func (p *Provider) begin(instance string, size layout.Size, at place) error {
	own, err := newOwnService(instance)
	if err != nil {
		return err
	}
	data, err := datapath.Open(datapath.Options{
		BPFFS: at.bpffs, Instance: instance, Cgroup: at.cgroup, Home: at.home, Size: size, Log: p.log,
	})
	if err == nil {
		if err = own.program(data); err != nil {
			data.Close()
		}
	}
	if err != nil {
		own.Close()
		return err
	}
	p.leave()
	p.data, p.own, p.state = data, own, data.State()
	if data.Attached() {
		p.path.Store(&testDial{service: own, inside: at.inside, cgroup: at.cgroup})
	}
	p.restartFlows()
	return nil
}

// leave gives up what this process holds, and what it knows of it. What is in the
// kernel stays.
func (p *Provider) leave() {
	p.stop()
	if p.data != nil {
		p.data.Close()
		p.data = nil
	}
	p.known, p.last, p.full, p.state = false, nil, false, dataplane.State{}
	clear(p.statuses)
	p.ends.clear()
}

// stop ends what runs beside the calls. p.mu is held; the goroutines that are
// waited for do not take it any more once they are told.
func (p *Provider) stop() {
	p.stopKeeper()
	p.stopFlows()
	p.path.Store(nil)
	if p.own != nil {
		p.own.Close()
		p.own = nil
	}
}

// State says what is in the kernel, be it by a process before.
func (p *Provider) State(context.Context) (dataplane.State, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state, nil
}

// Shutdown keeps or removes what is programmed.
func (p *Provider) Shutdown(ctx context.Context, policy dataplane.ShutdownPolicy) error {
	p.mu.Lock()
	instance := p.config.InstanceID
	if policy != dataplane.ShutdownRemove {
		p.leave()
	}
	p.mu.Unlock()
	if policy != dataplane.ShutdownRemove || instance == "" {
		return nil
	}
	items, err := p.Cleanup(ctx, dataplane.CleanupOptions{InstanceID: instance})
	for _, i := range items {
		if i.Result == dataplane.Failed {
			err = errors.Join(err, fmt.Errorf("%w: ebpf: %s: %s", dataplane.ErrFailed, i.Object, i.Message))
		}
	}
	return err
}

// now is the time; one place, so that all of a call agree.
func now() time.Time { return time.Now() }

// isOwn reports whether a service is the provider's and not the host's.
func isOwn(k dataplane.Key) bool { return k.Namespace == ownNamespace }

// hostServices is how many services of the host are in the kernel.
func hostServices(t *layout.Table) int {
	n := t.Len()
	if t.Has(ownKey()) {
		n--
	}
	return n
}
