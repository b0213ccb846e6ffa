package fake

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/dataplane"
)

// kernel is what is programmed: in memory, or in files that outlive the process.
//
//	DIR/INSTANCE/service.NAMESPACE%2FNAME   one service
//	DIR/INSTANCE/applied                    session, generation and digest of all
//
// The file "applied" is absent while services are being changed, so that after a
// crash in between nothing is believed to be applied.
type kernel struct {
	dir      string // "": in memory
	instance string
	services *dataplane.Editor        // programmed by this process
	found    map[dataplane.Key]string // what others had programmed, as text
	known    bool                     // these are all there is, by this process's own work
}

// freshFile is a file that is being written, before it gets its name.
const freshFile = ".new"

// object is one programmed service; text is known only for what was found.
type object struct {
	svc  *dataplane.Service
	text string
}

func (o object) String() string {
	if o.svc != nil {
		return render(o.svc)
	}
	return o.text
}

// endpoints is how many of them the object has.
func (o object) endpoints() int {
	if o.svc != nil {
		return o.svc.Endpoints.Len()
	}
	return strings.Count(o.text, endpointMark)
}

func newKernel(dir string) *kernel {
	k := &kernel{dir: dir, known: dir == ""}
	k.clear()
	return k
}

func (k *kernel) clear() {
	k.services, k.found = (&dataplane.Snapshot{}).Edit(), make(map[dataplane.Key]string)
}

// object is what is programmed for a service, if anything is.
func (k *kernel) object(key dataplane.Key) (o object, there bool) {
	o.svc = k.services.Service(key)
	o.text, there = k.found[key]
	return o, there || o.svc != nil
}

func (k *kernel) set(key dataplane.Key, svc *dataplane.Service) {
	delete(k.found, key)
	if svc != nil {
		k.services.Set(svc)
	} else {
		k.services.Delete(key)
	}
}

func (k *kernel) check() error {
	if k.dir == "" {
		return nil
	}
	f, err := os.CreateTemp(k.dir, ".probe-")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// open looks at what is there of an instance.
func (k *kernel) open(instance string) dataplane.State {
	k.instance = instance
	if k.dir == "" {
		return dataplane.State{}
	}
	k.known = false
	k.clear()
	for name, text := range k.files(instance) {
		if key, err := keyOf(name); err == nil {
			k.found[key] = text
		}
	}
	var s dataplane.State
	b, err := os.ReadFile(filepath.Join(k.dir, url.PathEscape(instance), "applied"))
	if err != nil || json.Unmarshal(b, &s) != nil {
		return dataplane.State{}
	}
	return s
}

func (k *kernel) keys() []dataplane.Key {
	keys := slices.Collect(maps.Keys(k.found))
	for svc := range k.services.Services() {
		keys = append(keys, svc.Key)
	}
	slices.SortFunc(keys, func(a, b dataplane.Key) int { return strings.Compare(a.String(), b.String()) })
	return keys
}

// put programs or removes a service and reports whether that changed anything.
func (k *kernel) put(key dataplane.Key, svc *dataplane.Service) (changed bool, err error) {
	was, had := k.object(key)
	switch {
	case svc == nil && !had, had && svc != nil && was.svc == svc:
		return false, nil
	case svc == nil:
		if err := k.remove(serviceFile(key)); err != nil {
			return false, err
		}
		k.set(key, nil)
		return true, nil
	}
	is := object{svc: svc}
	if had && was.String() == is.String() {
		k.set(key, svc)
		return false, nil
	}
	if err := k.write(serviceFile(key), is.String); err != nil {
		return false, err
	}
	k.set(key, svc)
	return true, nil
}

func (k *kernel) mark(s dataplane.State) error {
	return k.write("applied", func() string {
		b, _ := json.Marshal(s) // of plain values: cannot fail
		return string(b)
	})
}

func (k *kernel) unmark() error { return k.remove("applied") }

func (k *kernel) write(name string, text func() string) error {
	if k.dir == "" {
		return nil
	}
	path := filepath.Join(k.dir, url.PathEscape(k.instance), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	fresh := filepath.Join(filepath.Dir(path), freshFile)
	if err := os.WriteFile(fresh, []byte(text()), 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, path)
}

func (k *kernel) remove(name string) error {
	if k.dir == "" {
		return nil
	}
	err := os.Remove(filepath.Join(k.dir, url.PathEscape(k.instance), name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// files reads the services of an instance, by the names of their files.
func (k *kernel) files(instance string) map[string]string {
	out := make(map[string]string)
	paths, _ := filepath.Glob(filepath.Join(k.dir, escapeGlob(url.PathEscape(instance)), "service.*"))
	for _, path := range paths {
		if b, err := os.ReadFile(path); err == nil {
			out[filepath.Base(path)] = string(b)
		}
	}
	return out
}

// cleanup removes objects of one instance or of all, from memory and directory.
func (k *kernel) cleanup(what dataplane.CleanupOptions) []dataplane.CleanupItem {
	if k.dir == "" {
		return k.cleanupMemory(what)
	}
	var items []dataplane.CleanupItem
	entries, _ := os.ReadDir(k.dir)
	for _, entry := range entries {
		instance, err := url.PathUnescape(entry.Name())
		if err != nil || !entry.IsDir() {
			continue // not ours
		}
		ours := what.AllKnown || instance == what.InstanceID
		for _, name := range slices.Sorted(maps.Keys(k.files(instance))) {
			items = append(items, k.cleanupFile(instance, filepath.Join(k.dir, entry.Name(), name), ours, what.DryRun))
		}
		if ours && !what.DryRun {
			_ = os.Remove(filepath.Join(k.dir, entry.Name(), "applied"))
			_ = os.Remove(filepath.Join(k.dir, entry.Name(), freshFile)) // of a process that was killed
			_ = os.Remove(filepath.Join(k.dir, entry.Name()))            // stays if something else is in it
			if instance == k.instance {
				k.clear()
				k.known = false
			}
		}
	}
	return items
}

func (k *kernel) cleanupFile(instance, path string, ours, dryRun bool) dataplane.CleanupItem {
	item := dataplane.CleanupItem{Object: path, InstanceID: instance}
	switch {
	case !ours:
		item.Result, item.Message = dataplane.Kept, "of another instance"
	case dryRun:
		item.Result = dataplane.WouldRemove
	default:
		item.Result = dataplane.Removed
		if err := os.Remove(path); err != nil {
			item.Result, item.Message = dataplane.Failed, err.Error()
		}
	}
	return item
}

func (k *kernel) cleanupMemory(what dataplane.CleanupOptions) []dataplane.CleanupItem {
	ours := what.AllKnown || what.InstanceID == k.instance
	var items []dataplane.CleanupItem
	for _, key := range k.keys() {
		item := dataplane.CleanupItem{Object: key.String(), Result: dataplane.Removed, InstanceID: k.instance}
		switch {
		case !ours:
			item.Result, item.Message = dataplane.Kept, "of another instance"
		case what.DryRun:
			item.Result = dataplane.WouldRemove
		default:
			k.set(key, nil)
		}
		items = append(items, item)
	}
	return items
}

func (k *kernel) String() string {
	var b strings.Builder
	for _, key := range k.keys() {
		o, _ := k.object(key)
		b.WriteString(o.String())
	}
	return b.String()
}

func serviceFile(k dataplane.Key) string { return "service." + url.PathEscape(k.String()) }

func keyOf(file string) (dataplane.Key, error) {
	name, err := url.PathUnescape(strings.TrimPrefix(file, "service."))
	if err != nil {
		return dataplane.Key{}, fmt.Errorf("fake: file %s: %w", file, err)
	}
	return dataplane.ParseKey(name)
}

func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(s)
}
