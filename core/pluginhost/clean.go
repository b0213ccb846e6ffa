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
		return cleaned(name, items, nil), err
	}
	var out []Cleaned
	var instances []string // that are to go and may
	for _, item := range there {
		c := Cleaned{Plugin: name, Object: item.Object, Instance: item.InstanceID, Result: dataplane.Kept}
		switch user := userOf(users, item.InstanceID); {
		case len(o.Instances) > 0 && !slices.Contains(o.Instances, item.InstanceID):
			if c.Message = "of another instance"; item.InstanceID != "" {
				c.Message = "of instance " + item.InstanceID
			}
		case user != "":
			c.Message, c.InUse = "in use by "+user, true
		case item.InstanceID == "":
			c.Message, c.InUse = "nobody knows whose it is, and "+users[0].Who+" runs", true
		default:
			instances = append(instances, item.InstanceID)
			continue // told by the call that removes it
		}
		out = append(out, c)
	}
	for _, instance := range o.Instances { // also those of a plugin that does not say whose its objects are
		if userOf(users, instance) == "" {
			instances = append(instances, instance)
		}
	}
	slices.Sort(instances)
	var errs []error
	for _, instance := range slices.Compact(instances) {
		items, err := call(dataplane.CleanupOptions{InstanceID: instance})
		errs = append(errs, err)
		out = append(out, cleaned(name, items, func(i dataplane.CleanupItem) bool { return i.Result == dataplane.Kept })...)
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

// cleaned lists what a call found, but for what without says.
func cleaned(plugin string, items []dataplane.CleanupItem, without func(dataplane.CleanupItem) bool) []Cleaned {
	var out []Cleaned
	for _, i := range items {
		if without == nil || !without(i) {
			out = append(out, Cleaned{Plugin: plugin, Object: i.Object, Instance: i.InstanceID, Result: i.Result, Message: i.Message})
		}
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
