package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

// CleanOptions say what Clean removes.
type CleanOptions struct {
	Instances []string // whose objects; all if none
	DryRun    bool
	Force     bool   // also what is in use
	Users     []User // who uses something
}

// Cleaned is one object that was found.
type Cleaned struct {
	Plugin   string // empty: none, it is the host's
	Object   string // empty: it is about the plugin as a whole
	Instance string // empty: not known
	Result   dataplane.CleanupResult
	Message  string
	// InUse: it was to be removed and was not, as somebody uses it.
	InUse bool
}

// Clean removes what data planes left in the system: those of all plugins that are
// installed, chosen or not. It needs neither an agent nor state, and leaves alone what
// is in use.
func (h *Host) Clean(ctx context.Context, o CleanOptions) []Cleaned {
	var out []Cleaned
	for _, c := range h.Discovery().Candidates {
		switch {
		case c.ShadowedBy != "":
		case c.Refused != nil:
			out = append(out, Cleaned{Plugin: c.Name, Result: dataplane.Failed, Message: "it may not be run, so it cannot clean: " + c.Refused.Error()})
		default:
			found, err := h.cleanPlugin(ctx, c.Name, o)
			out = append(out, found...)
			if err != nil {
				out = append(out, Cleaned{Plugin: c.Name, Result: dataplane.Failed, Message: err.Error()})
			}
		}
	}
	return out
}

// cleanPlugin cleans after one plugin, with a process of its own: one that runs is
// left alone.
func (h *Host) cleanPlugin(ctx context.Context, name string, o CleanOptions) ([]Cleaned, error) {
	i, err := h.begin(ctx, name, hosting{timeout: h.cfg.Timing.Start}, true)
	if err != nil {
		return nil, err
	}
	defer i.stop(h.cfg.Timing)
	call := func(what dataplane.CleanupOptions) ([]dataplane.CleanupItem, error) {
		what.DryRun = what.DryRun || o.DryRun
		return i.cleanup(ctx, h.cfg.Timing.Cleanup, what)
	}
	there, err := call(dataplane.CleanupOptions{AllKnown: true, DryRun: true})
	if err != nil {
		return nil, err
	}
	users := slices.DeleteFunc(slices.Clone(o.Users), func(u User) bool { return u.Plugin != "" && u.Plugin != name || o.Force })
	if len(o.Instances) == 0 && len(users) == 0 {
		items, err := call(dataplane.CleanupOptions{AllKnown: true})
		return cleaned(name, items), err
	}
	var out []Cleaned
	var errs []error
	done := map[string]bool{} // objects that a call for their instance told of
	// one cleans after an instance, or tells what it has if somebody uses that.
	one := func(instance string) {
		user := userOf(users, instance)
		items, err := call(dataplane.CleanupOptions{InstanceID: instance, DryRun: user != ""})
		errs = append(errs, err)
		for _, c := range cleaned(name, items) {
			if c.Result == dataplane.Kept || done[c.Object] && c.Object != "" {
				continue
			}
			done[c.Object] = true
			if user != "" && c.Result == dataplane.WouldRemove {
				c.Result, c.Message, c.InUse = dataplane.Kept, "in use by "+user, true
			}
			out = append(out, c)
		}
	}
	// Some plugins find only for an instance that is named what is its own.
	instances := slices.Clone(o.Instances)
	if len(instances) == 0 {
		for _, item := range there {
			if item.InstanceID != "" {
				instances = append(instances, item.InstanceID)
			}
		}
	}
	slices.Sort(instances)
	for _, instance := range slices.Compact(instances) {
		one(instance)
	}
	for _, item := range there {
		if done[item.Object] {
			continue
		}
		c := Cleaned{Plugin: name, Object: item.Object, Instance: item.InstanceID, Result: dataplane.Kept}
		switch {
		case len(o.Instances) == 0:
			c.Message, c.InUse = "nobody knows whose it is, and "+users[0].Who+" runs", true
		case item.InstanceID != "":
			c.Message = "of instance " + item.InstanceID
		default:
			c.Message = "of another instance"
		}
		out = append(out, c)
	}
	return out, errors.Join(errs...)
}

// userOf says who uses the objects of an instance, empty if nobody does.
func userOf(users []User, instance string) string {
	for _, u := range users {
		if u.Instance == "" || u.Instance == instance {
			return u.Who
		}
	}
	return ""
}

// cleaned lists what a call found.
func cleaned(plugin string, items []dataplane.CleanupItem) []Cleaned {
	var out []Cleaned
	for _, i := range items {
		out = append(out, Cleaned{Plugin: plugin, Object: i.Object, Instance: i.InstanceID, Result: i.Result, Message: i.Message})
	}
	return out
}

// Trace is what an agent that does not run any more left beside what its data planes
// have in the system: its run directory, with processes that serve on, and the state
// of its data planes.
type Trace struct {
	run, state string
	lock       *os.File // nil: the run directory is not there
}

// zombieTime is far above what it takes to see that a process has ended.
const zombieTime = 100 * time.Millisecond

// ErrInUse: an agent that runs uses the directory.
var ErrInUse = errors.New("pluginhost: an agent uses the run directory")

// OpenTrace takes the directories of an agent, so that none begins to use them. An
// error wraps ErrInUse if one does.
func OpenTrace(runDir, stateDir string) (*Trace, error) {
	t := &Trace{run: runDir, state: stateDir}
	if info, err := os.Lstat(runDir); err != nil || !info.IsDir() {
		return t, nil
	}
	lock, err := os.OpenFile(filepath.Join(runDir, lockFile), os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err == nil {
		if err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			t.lock = lock
			return t, nil
		}
		_ = lock.Close()
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("%w %s", ErrInUse, runDir)
	}
	return nil, fmt.Errorf("pluginhost: run directory %s: %w", runDir, err)
}

// Instances returns the instance ids under which the data planes of that agent may
// have something in the system.
func (t *Trace) Instances() []string {
	var out []string
	list, _ := readOwned(t.state) // damaged: then those that are known otherwise
	for _, o := range list {
		out = append(out, o.Instance)
	}
	files, _ := filepath.Glob(filepath.Join(t.state, "*"+instanceSuffix))
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil {
			out = append(out, strings.TrimSpace(string(text)))
		}
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(id string) bool { return id == "" })
}

// EndProcesses ends data planes that serve on for an agent that is gone, and returns
// them with their pids. A dry run ends nothing.
func (t *Trace) EndProcesses(patience Timing, dryRun bool) (out []Cleaned, pids []int) {
	if t.lock == nil {
		return nil, nil
	}
	records, _ := filepath.Glob(filepath.Join(t.run, "*"+recordSuffix))
	run := &runDir{path: t.run}
	for _, file := range records {
		rec, ok := readRecord(t.run, strings.TrimSuffix(filepath.Base(file), recordSuffix))
		if !ok {
			continue
		}
		proc := rec.process()
		if proc == nil {
			continue
		}
		if proc.ended(zombieTime) { // nobody has taken its status yet
			continue
		}
		pids = append(pids, rec.PID)
		c := Cleaned{Plugin: rec.Name, Object: fmt.Sprintf("process %d", rec.PID), Result: dataplane.WouldRemove, Message: "it serves on for an agent that is gone"}
		if dryRun {
			proc.release()
		} else {
			proc.end(patience.Terminate)
			run.forget(rec)
			c.Result = dataplane.Removed
		}
		out = append(out, c)
	}
	return out, pids
}

// Remove removes the files, and the directories that are empty then. What it does not
// know it leaves. keepOwned keeps the list of what the data planes of that agent may
// still have in the system.
func (t *Trace) Remove(dryRun, keepOwned bool) []Cleaned {
	var out []Cleaned
	remove := func(path string) {
		c := Cleaned{Object: path, Result: dataplane.WouldRemove}
		if !dryRun {
			c.Result = dataplane.Removed
			if err := os.RemoveAll(path); err != nil {
				c.Result, c.Message = dataplane.Failed, err.Error()
			}
		}
		out = append(out, c)
	}
	plugins := map[string]bool{}
	entries, _ := os.ReadDir(t.state)
	for _, e := range entries {
		name := e.Name()
		switch {
		case name == ownedFile && keepOwned:
		case name == choiceFile, name == ownedFile, strings.HasSuffix(name, instanceSuffix), e.IsDir() && handshake.ValidName(name):
			plugins[name] = true
			remove(filepath.Join(t.state, name))
		}
	}
	inRun := t.run == filepath.Dir(t.state) // of a node that keeps nothing
	entries, _ = os.ReadDir(t.run)
	for _, e := range entries {
		name := e.Name()
		switch ext := filepath.Ext(name); {
		case inRun && name == filepath.Base(t.state), name == lockFile:
		case strings.HasPrefix(name, startPrefix), e.IsDir() && handshake.ValidName(name),
			!e.IsDir() && slices.Contains([]string{recordSuffix, socketSuffix, ".log", ".tmp"}, ext):
			remove(filepath.Join(t.run, name))
		}
	}
	if !dryRun {
		_ = os.Remove(t.state) // stays if something else is in it
		t.removeRunDir()
	}
	return out
}

// removeRunDir removes the run directory with its lock, if nothing else is in it.
func (t *Trace) removeRunDir() {
	entries, err := os.ReadDir(t.run)
	if err == nil && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() != lockFile }) {
		_ = os.Remove(filepath.Join(t.run, lockFile))
		_ = os.Remove(t.run)
	}
}

// Close lets go of the directories.
func (t *Trace) Close() {
	if t.lock != nil {
		_ = t.lock.Close()
	}
}
