package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/fairlead/fairlead/core/config"
	"github.com/fairlead/fairlead/core/durable"
)

const (
	// settle is how long a directory is quiet before its files are read: an
	// editor writes one in several steps.
	settle = 100 * time.Millisecond
	// rescan bounds how long a change stays unseen that inotify does not tell
	// of: on a network file system, or behind a link.
	rescan = 5 * time.Second
	// serviceFileBytes bounds one file.
	serviceFileBytes = 4 << 20
)

// serviceFile is one file of services_dir with its last good content.
type serviceFile struct {
	path     string
	services []config.Service
	origins  config.Origins
	list     bool // it has a list of services
	bad      bool // what it says now is not what it said when it was good
}

func (f serviceFile) where(i int) string {
	if f.list {
		return f.origins.Of(entryPath(i)).String()
	}
	return f.path
}

// entryPath is the path of an entry of services in the configuration.
func entryPath(i int) string { return fmt.Sprintf("services[%d]", i) }

// servicesDir reads the files of a directory, each anew only when it changed.
// All but again belongs to one goroutine at a time.
type servicesDir struct {
	path  string // empty: there is none
	log   *slog.Logger
	files map[string]*seenFile
	again chan struct{} // capacity 1: look now
	deaf  bool          // it was said that the directory cannot be read
	owed  bool          // what the last scan returned is not all in force
}

// seenFile is a file as it was when it was last read.
type seenFile struct {
	stamp stamp
	file  serviceFile
	wrong string // what was last said of it; empty: nothing
}

// stamp tells two states of a file apart, also where an other one of the same
// size and time of writing takes its place, or its mode changes.
type stamp struct {
	modified      time.Time
	size          int64
	device, inode uint64
	changed       syscall.Timespec
}

func stampOf(info fs.FileInfo) stamp {
	s := stamp{modified: info.ModTime(), size: info.Size()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.device, s.inode, s.changed = sys.Dev, sys.Ino, sys.Ctim
	}
	return s
}

func newServicesDir(path string, log *slog.Logger) *servicesDir {
	return &servicesDir{path: path, log: log, files: make(map[string]*seenFile), again: make(chan struct{}, 1)}
}

// look asks for a scan. It does not wait for it.
func (d *servicesDir) look() {
	select {
	case d.again <- struct{}{}:
	default:
	}
}

// run hands what the directory holds to use whenever that changed, and again at
// the next look if use says that it is owed that, until ctx ends.
func (d *servicesDir) run(ctx context.Context, use func([]serviceFile) (owed bool)) {
	if d.path == "" {
		return
	}
	var events <-chan fsnotify.Event
	var failures <-chan error
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		d.log.Warn("changes of the files of services are seen late: they cannot be watched", "every", rescan, "error", err)
	} else {
		defer watcher.Close()
		events, failures = watcher.Events, watcher.Errors
	}
	poll := time.NewTicker(rescan)
	defer poll.Stop()
	for {
		if watcher != nil && len(watcher.WatchList()) == 0 {
			_ = watcher.Add(d.path) // until it exists the poll finds it
		}
		if files, changed := d.scan(); changed || d.owed && !d.deaf {
			d.owed = use(files)
		}
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		case <-d.again:
		case <-failures:
		case e := <-events:
			d.forget(e.Name)
			if !d.quiet(ctx, events) {
				return
			}
		}
	}
}

// quiet waits until nothing happened for a while, at most a second. It is
// false if ctx ended.
func (d *servicesDir) quiet(ctx context.Context, events <-chan fsnotify.Event) bool {
	timer, limit := time.NewTimer(settle), time.NewTimer(10*settle)
	defer timer.Stop()
	defer limit.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case e := <-events:
			d.forget(e.Name)
			timer.Reset(settle)
		case <-timer.C:
			return true
		case <-limit.C:
			return true
		}
	}
}

// forget makes the next scan read a file again, whatever its stamp.
func (d *servicesDir) forget(path string) {
	if f := d.files[path]; f != nil {
		f.stamp = stamp{}
	}
}

// scan returns what the files say, by their names, and whether that is
// different from what the scan before returned.
func (d *servicesDir) scan() (files []serviceFile, changed bool) {
	if d.path == "" {
		return nil, false
	}
	entries, err := os.ReadDir(d.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		if !d.deaf {
			d.log.Error("the files of services cannot be read; what they said before stays", "error", err)
		}
		d.deaf = true
		return nil, false
	}
	d.deaf = false
	there := make(map[string]bool)
	for _, e := range entries {
		path := filepath.Join(d.path, e.Name())
		if strings.HasPrefix(e.Name(), ".") || filepath.Ext(path) != ".yaml" && filepath.Ext(path) != ".yml" {
			continue
		}
		exists, news := d.read(path)
		changed = changed || news
		if exists {
			there[path] = true
			files = append(files, d.files[path].file)
		}
	}
	for path := range d.files {
		if !there[path] {
			delete(d.files, path)
			changed = true
		}
	}
	return files, changed
}

// read brings one file up to date and reports whether that changed anything.
func (d *servicesDir) read(path string) (exists, changed bool) {
	info, err := os.Stat(path) // of what a link leads to
	if errors.Is(err, fs.ErrNotExist) {
		return false, false
	}
	seen := d.files[path]
	if seen == nil {
		seen = &seenFile{file: serviceFile{path: path}}
		d.files[path] = seen
	}
	if err == nil {
		now := stampOf(info)
		if now == seen.stamp {
			return true, false
		}
		seen.stamp = now
		if !info.Mode().IsRegular() {
			err = fmt.Errorf("agent: %s is not a file: replace it by one, or remove it", path)
		}
	}
	var text []byte
	if err == nil {
		text, err = durable.Read(path, serviceFileBytes)
		if system := (*fs.PathError)(nil); errors.As(err, &system) {
			seen.stamp = stamp{} // it may be readable a moment later
		}
	}
	var next serviceFile
	if err == nil {
		next, err = parseFile(path, text)
	}
	if err != nil {
		if wrong := oneLine(err); wrong != seen.wrong {
			d.log.Error("a file of services is not used; what it said before stays", "error", wrong)
			seen.wrong = wrong
		}
		changed = !seen.file.bad
		seen.file.bad = true
		return true, changed
	}
	seen.file, seen.wrong = next, ""
	return true, true
}

// parseFile reads the text of a file.
func parseFile(path string, text []byte) (f serviceFile, err error) {
	f.path = path
	if f.services, f.origins, err = config.ParseServices(path, text); err != nil {
		return f, err
	}
	_, f.list = f.origins["services"]
	return f, nil
}
