package datapath

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/plugins/ebpf/internal/layout"
)

// Names below a BPF file system. They must not hold a dot: the kernel keeps such
// names for itself.
const (
	rootName   = "fairlead"
	linksName  = "links"
	sharedName = "shared-1" // the number rises when a shared map changes
)

// Root is the directory of an instance.
func Root(bpffs, instance string) string {
	return filepath.Join(bpffs, rootName, strings.ReplaceAll(url.PathEscape(instance), ".", "%2E"))
}

// layoutDir is where the maps of a layout are pinned: its version, and how often
// they were made anew.
type layoutDir struct{ version, number int }

func (l layoutDir) String() string { return fmt.Sprintf("layout-%d-%d", l.version, l.number) }

func parseLayoutDir(name string) (l layoutDir, ok bool) {
	_, err := fmt.Sscanf(name, "layout-%d-%d", &l.version, &l.number)
	return l, err == nil && l.String() == name
}

// ErrNewer is wrapped when a later version of the provider left its maps here.
var ErrNewer = errors.New("datapath: made by a newer version")

// layouts lists the layouts below a root, the newest first, and how many of them
// are not whole.
func layouts(root string) ([]layoutDir, error) {
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []layoutDir
	for _, e := range entries {
		if l, ok := parseLayoutDir(e.Name()); ok {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b layoutDir) int { return cmp.Or(b.version-a.version, b.number-a.number) })
	if len(out) > 0 && out[0].version > layout.Version {
		return nil, fmt.Errorf("%w: %s is there, this is version %d: run the newer one, or remove its work with `fairlead cleanup`",
			ErrNewer, filepath.Join(root, out[0].String()), layout.Version)
	}
	return out, nil
}

func (l layoutDir) whole(root string) bool {
	_, err := os.Stat(filepath.Join(root, l.String(), stampMap))
	return err == nil
}

// Exists reports whether an instance left anything.
func Exists(bpffs, instance string) bool { return exists(Root(bpffs, instance)) }

// Found is the work of one instance.
type Found struct {
	Root     string
	Instance string
}

// Find lists the instances that left something in a BPF file system.
func Find(bpffs string) ([]Found, error) {
	entries, err := os.ReadDir(filepath.Join(bpffs, rootName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("datapath: %w", err)
	}
	var out []Found
	for _, e := range entries {
		if instance, err := url.PathUnescape(e.Name()); err == nil && e.IsDir() {
			out = append(out, Found{Root: filepath.Join(bpffs, rootName, e.Name()), Instance: instance})
		}
	}
	return out, nil
}

// Objects lists what an instance left: its links, then the directories of its maps.
// Removing them in this order never leads a socket to half of a data plane.
func (f Found) Objects() []string {
	var out []string
	for _, h := range slices.Backward(Hooks()) {
		if pin := filepath.Join(f.Root, linksName, h.Name); exists(pin) {
			out = append(out, pin)
		}
	}
	entries, _ := os.ReadDir(f.Root) // what cannot be read fails when it is removed
	for _, e := range entries {
		if e.Name() != linksName {
			out = append(out, filepath.Join(f.Root, e.Name()))
		}
	}
	return append(out, f.Root)
}

// RemoveObject removes one of Objects.
func (f Found) RemoveObject(object string) error {
	if filepath.Dir(object) == filepath.Join(f.Root, linksName) {
		return detach(object)
	}
	if err := os.RemoveAll(object); err != nil || object != f.Root {
		return err
	}
	_ = os.Remove(filepath.Dir(f.Root)) // where nobody is any more; fails if somebody is
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
