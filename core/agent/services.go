package agent

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/core/config"
	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/membership"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/record"
	"github.com/fairlead/fairlead/core/view"
)

// healthFile keeps, in the data directory, which checks pass.
const healthFile = "health.json"

// publishPause separates two records of this node, so that many changes at
// once are one rumour.
const publishPause = 50 * time.Millisecond

// pulledPause separates them while their vector is too long for a rumour: all
// nodes pull it, and need the time to.
const pulledPause = time.Second

// pauseAfter is how long to wait after a record with this vector.
func pauseAfter(vector []byte) time.Duration {
	if len(vector) > membership.RumourVectorBytes {
		return pulledPause
	}
	return publishPause
}

// services is what this node runs: it joins what the configuration, the files
// of services_dir and clients say, has it checked, and tells the cluster.
//
// Its mutex guards what the sources say; one goroutine publishes after changes
// of that and of the checks' results, another one watches the directory.
type services struct {
	dir       string // of the state; empty: none is kept
	advertise netip.Addr
	set       func(definition, vector []byte) error // membership's SetRecord
	log       *slog.Logger
	metrics   *metrics
	now       func() time.Time
	health    *health.Runner
	watched   *servicesDir

	mu          sync.Mutex // guards the following
	config      listed
	files       []serviceFile
	unfit       map[string]string // files for which there was no room, by path, and why
	filesFailed string            // what was last said of all files
	registered  registrations
	births      *births
	drains      drains
	all         []placed
	left        []unused
	server      *record.Server // this node's part in the store; nil: none
	builtin     *builtin       // what to publish of that; nil: nothing
	published   bool           // builtin is in the definition
	definition  []byte         // nil: nothing runs here

	changed chan struct{} // capacity 1: there may be something to publish
	running sync.WaitGroup

	publishing sync.Mutex // held while a record is made and told
	told       bool
	toldDef    []byte
	toldVector []byte
	timer      *time.Timer // for when a drain time is over
}

// startServices says for the first time what runs here.
func (a *Agent) startServices(c *cleanups) error {
	s, err := a.newServices()
	if err != nil {
		return err
	}
	hc := health.Config{OnChange: s.kick, Now: s.now, Log: a.log.With("part", "health"), Metrics: a.opts.Metrics}
	if s.dir != "" {
		hc.Path = filepath.Join(s.dir, healthFile)
	}
	if s.health, err = health.Start(hc); err != nil {
		return err
	}
	c.add(func(context.Context) { s.health.Close() })
	if err := s.begin(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.running.Go(func() { s.run(ctx) })
	s.running.Go(func() { s.watched.run(ctx, s.setFiles) })
	c.add(func(context.Context) { cancel(); s.running.Wait() })
	a.services = s
	return nil
}

// newServices reads what the data directory and the configuration hold.
func (a *Agent) newServices() (*services, error) {
	loaded := a.settings.Load()
	s := &services{
		dir: a.dataDir(), advertise: loaded.Config.AdvertiseAddr().Addr(), set: a.members.SetRecord,
		log: a.log.With("part", "services"), metrics: a.metrics, now: a.opts.Now,
		config:  fromConfig(loaded.Config.Services, loaded.Origins),
		changed: make(chan struct{}, 1),
		// Others may hold the record of the run before, so that there is nothing
		// needs telling too. In its first run a node has none.
		told: a.members.Snapshot().Self.Value.Epoch == 1,
	}
	s.watched = newServicesDir(loaded.Config.ServicesPath(), s.log)
	var why string
	if s.builtin, why = newBuiltin(loaded.Config, a.listening("api.listen")); why != "" {
		s.log.Warn("the built-in services raft/leader and raft/servers are not published by this node", "reason", why)
	}
	var err error
	if s.births, err = readBirths(s.dir); err != nil {
		return nil, err
	}
	if s.registered, err = readRegistrations(s.dir); err != nil {
		return nil, err
	}
	s.drains.wanted, err = readMaintenance(s.dir)
	return s, err
}

// begin joins the sources and tells what they say.
func (s *services) begin() error {
	s.mu.Lock()
	files, _ := s.watched.scan()
	// What a client registered, or the configuration says, is not in doubt: it
	// has to fit as it is.
	_, err := s.plan()
	if err == nil {
		s.watched.owed, err = s.useFiles(files)
	}
	s.warnUnused(nil)
	for _, o := range s.drains.wanted {
		s.log.Warn("instances are in maintenance; `fairlead maintenance off` ends it", "what", o.String())
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.publish()
}

func fromConfig(list []config.Service, origins config.Origins) listed {
	return listed{services: list, where: func(i int) string { return origins.Of(entryPath(i)).String() }}
}

// kick asks for a look whether there is something to publish.
func (s *services) kick() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// plan is what the sources make of this node. It is immutable.
type plan struct {
	all        []placed
	left       []unused
	registered map[string]int64 // births
	published  bool             // the built-in services are in the definition
	definition []byte           // nil: nothing runs here
}

// plan joins what the sources say now. The caller holds the mutex.
func (s *services) plan() (plan, error) {
	var p plan
	var err error
	p.all, p.left = compose(s.sources())
	p.registered = s.births.of(p.all, s.now().UnixMilli())
	if len(p.all) > 0 || s.server != nil {
		def := definition(p.all, s.advertise, p.registered)
		def.Server = s.server
		if with := def; s.server != nil && s.builtin != nil {
			s.builtin.add(&with)
			// Should there be no room for it, what the user has comes first.
			if p.definition, err = record.Encode(with); err == nil {
				p.published = true
				return p, nil
			}
		}
		p.definition, err = record.Encode(def)
	}
	return p, err
}

// use makes a plan what runs here. On an error nothing changed. The caller
// holds the mutex.
func (s *services) use(p plan) error {
	if err := s.births.keep(p.registered); err != nil {
		return err
	}
	s.all, s.left, s.published, s.definition = p.all, p.left, p.published, p.definition
	s.health.Set(checked(p.all))
	return nil
}

// apply makes what the sources say now what runs here. On an error nothing
// changed but the sources themselves. The caller holds the mutex.
func (s *services) apply() error {
	p, err := s.plan()
	if err != nil {
		return err
	}
	return s.use(p)
}

// setServer says what part this node has in the store; nil is none.
func (s *services) setServer(part *record.Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.server
	s.server = part
	if err := s.apply(); err != nil {
		s.server = was
		s.log.Error("the others are not told that this node is a server of the store", "error", err)
		return
	}
	s.kick()
}

// warnUnused names services that two places have, once.
func (s *services) warnUnused(before []unused) {
	for _, u := range s.left {
		if !slices.Contains(before, u) {
			s.log.Warn("a service is not used as it is written", "error", u.String())
		}
	}
}

// sources are the places that say what runs here, the strongest first.
func (s *services) sources() []listed {
	sources := []listed{s.config}
	for _, f := range s.files {
		sources = append(sources, listed{services: f.services, where: f.where})
	}
	return append(sources, listed{services: s.registered.list(), where: func(int) string { return sourceAPI }})
}

// run publishes after changes.
func (s *services) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		}
		if err := s.publish(); err != nil && ctx.Err() == nil {
			s.log.Error("what runs on this node could not be told to the others", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(s.pause()):
		}
	}
}

// publish tells the cluster what runs here, if that is news.
func (s *services) publish() error {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	s.mu.Lock()
	def, now := s.definition, s.now()
	states, next := s.drains.states(s.all, s.health.States(), now)
	if s.published {
		states = append(states, s.builtin.states(s.server, s.drains.stopping)...)
	}
	s.mu.Unlock()
	s.wake(next, now)
	vector, err := record.EncodeVector(states)
	if err != nil {
		return err
	}
	if s.told && bytes.Equal(def, s.toldDef) && bytes.Equal(vector, s.toldVector) {
		return nil
	}
	if err := s.set(def, vector); err != nil {
		return err
	}
	s.metrics.records.Inc()
	s.told, s.toldDef, s.toldVector = true, def, vector
	return nil
}

// pause is how long the next record has to wait.
func (s *services) pause() time.Duration {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	return pauseAfter(s.toldVector)
}

// wake publishes again at a time; zero is never. The caller holds publishing.
func (s *services) wake(at, now time.Time) {
	switch {
	case at.IsZero():
		if s.timer != nil {
			s.timer.Stop()
		}
	case s.timer == nil:
		s.timer = time.AfterFunc(at.Sub(now), s.kick)
	default:
		s.timer.Reset(at.Sub(now))
	}
}

// setConfig takes what a reload read.
func (s *services) setConfig(list []config.Service, origins config.Origins) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, left := s.config, s.left
	s.config = fromConfig(list, origins)
	if err := s.apply(); err != nil {
		s.config = was
		return err
	}
	s.warnUnused(left)
	s.kick()
	return nil
}

// setFiles takes what the directory holds now, and reports whether it has to be
// asked again later.
func (s *services) setFiles(files []serviceFile) (owed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.left
	owed, err := s.useFiles(files)
	if err != nil {
		if text := oneLine(err); text != s.filesFailed {
			s.log.Error("what the files of services say now is not used; what they said before stays", "error", text)
			s.filesFailed = text
		}
		return true
	}
	s.filesFailed = ""
	s.warnUnused(left)
	s.kick()
	return owed
}

// useFiles puts into force what these files say. One that says more than a node
// can hold is left as it was in force before, and harms no other; owed then
// says that there may be room for it later. The caller holds the mutex.
func (s *services) useFiles(files []serviceFile) (owed bool, err error) {
	was := s.files
	s.files = files
	p, err := s.plan()
	unfit := make(map[string]string)
	if err != nil {
		s.files = before(files, was)
		if p, err = s.plan(); err != nil {
			s.files = was
			return true, err
		}
		for i, f := range files {
			old := s.files[i]
			s.files[i] = f
			switch next, err := s.plan(); {
			case err == nil:
				p = next
			default:
				unfit[f.path] = oneLine(err)
				s.files[i] = old
			}
		}
	}
	if err := s.use(p); err != nil {
		s.files = was
		return true, err
	}
	shown := slices.Clone(files)
	for i, f := range shown {
		why, known := unfit[f.path]
		shown[i].bad = f.bad || known
		if known && why != s.unfit[f.path] {
			s.log.Error("a file of services is not used; what it said before stays", "path", f.path, "error", why)
		}
	}
	s.unfit = unfit
	s.metrics.showFiles(shown)
	return len(unfit) > 0, nil
}

// before is what is in force of these files.
func before(files, inForce []serviceFile) []serviceFile {
	old := make([]serviceFile, len(files))
	for i, f := range files {
		old[i] = serviceFile{path: f.path}
		if j := slices.IndexFunc(inForce, func(have serviceFile) bool { return have.path == f.path }); j >= 0 {
			old[i] = inForce[j]
		}
	}
	return old
}

// shownBy reports whether a view shows what this node last told of itself.
func (s *services) shownBy(v *view.View) bool {
	s.publishing.Lock()
	def, vector := s.toldDef, s.toldVector
	s.publishing.Unlock()
	self := v.Node(v.Self)
	if self == nil || self.Record == nil {
		return len(def) == 0
	}
	shown := &self.Record.Definition
	if len(def) == 0 {
		return len(shown.Services) == 0 && len(shown.Instances) == 0
	}
	states, err := record.EncodeVector(self.Record.States)
	if err != nil || !bytes.Equal(states, vector) {
		return false
	}
	encoded, err := record.Encode(*shown)
	return err == nil && bytes.Equal(encoded, def)
}

// own returns where this node defines a service, empty if it does not.
func (s *services) own(key model.ServiceKey) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.published && isBuiltin(key) {
		return sourceBuiltin
	}
	return whereIs(s.all, key)
}

// whereIs returns where a service is written, empty if it is nowhere.
func whereIs(all []placed, key model.ServiceKey) string {
	for _, p := range all {
		if p.key == key {
			return p.where
		}
	}
	return ""
}

// oneLine joins the findings of an error.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
