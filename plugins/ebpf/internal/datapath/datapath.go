package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/layout"
)

// Options say where a data path is.
type Options struct {
	BPFFS    string // a mounted BPF file system
	Instance string // whose it is
	Cgroup   string // directory of the cgroup whose sockets are led
	Home     uint64 // cookie of the agent's network namespace
	Size     layout.Size
	Log      *slog.Logger
}

// Datapath is what one instance has in the kernel. It is not safe for use by
// several goroutines, except for Shared.
type Datapath struct {
	options  Options
	root     string
	grace    *Grace
	shared   map[string]*ebpf.Map
	current  layoutDir
	maps     *Maps
	table    *layout.Table
	programs programs
	links    links
	attached bool // Invariant: the links run d.programs
}

// Open goes on with what another process of the instance left, or begins anew. If
// that cannot be understood its programs go on as they are until Attach.
func Open(o Options) (*Datapath, error) {
	RaiseLocked()
	d := &Datapath{options: o, root: Root(o.BPFFS, o.Instance), links: make(links)}
	err := d.open()
	if err != nil {
		d.Close()
		return nil, fmt.Errorf("datapath: %w", err)
	}
	return d, nil
}

func (d *Datapath) open() (err error) {
	found, err := layouts(d.root)
	if err != nil {
		return err
	}
	if d.grace, err = NewGrace(); err != nil {
		return Unlocked(err)
	}
	if err := d.openShared(); err != nil {
		return err
	}
	if len(found) > 0 {
		d.current.number = found[0].number
	}
	for _, l := range found {
		if l.version != layout.Version || !l.whole(d.root) {
			continue
		}
		if err := d.adopt(l); err != nil {
			d.options.Log.Warn("what a former process left cannot be gone on with; it is replaced once all is known", "layout", l.String(), "error", err)
			break
		}
		return d.Attach()
	}
	led := exists(filepath.Join(d.root, linksName))
	if err := d.begin(d.options.Size); err != nil {
		return err
	}
	if led {
		return nil // the old programs serve on meanwhile
	}
	return d.Attach()
}

// openShared opens or makes the maps that all layouts share.
func (d *Datapath) openShared() error {
	spec, err := bpf.LoadSocket()
	if err != nil {
		return err
	}
	dir := filepath.Join(d.root, sharedName)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	d.shared = make(map[string]*ebpf.Map)
	for _, name := range sharedMaps() {
		m, err := openMap(dir, name, spec.Maps[name])
		if errors.Is(err, fs.ErrNotExist) {
			if m, err = ebpf.NewMap(spec.Maps[name]); err != nil {
				return fmt.Errorf("map %s: %w", name, Unlocked(err))
			}
			err = m.Pin(filepath.Join(dir, name))
		}
		if err != nil {
			return err
		}
		d.shared[name] = m
	}
	return nil
}

// adopt goes on with the maps of a layout.
func (d *Datapath) adopt(l layoutDir) error {
	maps, err := openMaps(filepath.Join(d.root, l.String()), d.grace.Wait)
	if err != nil {
		return err
	}
	if d.table, err = layout.Adopt(maps, maps.Size()); err != nil {
		maps.Close()
		return err
	}
	d.current, d.maps = l, maps
	d.programs, err = loadPrograms(d.options.Home, maps.byName, d.shared)
	return err
}

// begin makes a layout without content.
func (d *Datapath) begin(size layout.Size) error {
	maps, err := newMaps(size, d.grace.Wait)
	if err != nil {
		return Unlocked(err)
	}
	d.maps, d.table = maps, layout.NewTable(maps, size)
	if d.programs, err = loadPrograms(d.options.Home, maps.byName, d.shared); err != nil {
		return err
	}
	d.current = layoutDir{layout.Version, d.current.number + 1}
	return maps.pin(filepath.Join(d.root, d.current.String()))
}

// Attach leads all hooks to the programs of this process, and removes the layouts
// that no program uses any more.
func (d *Datapath) Attach() error {
	if err := d.links.attach(filepath.Join(d.root, linksName), d.options.Cgroup, d.programs); err != nil {
		return err
	}
	d.attached = true
	found, err := layouts(d.root)
	for _, l := range found {
		if l != d.current {
			err = errors.Join(err, os.RemoveAll(filepath.Join(d.root, l.String())))
		}
	}
	return err
}

// Attached reports whether the hooks run what this process loaded.
func (d *Datapath) Attached() bool { return d.attached }

// Grow makes the maps anew with another size, with the same content, and leads the
// hooks to them. No connection meets a moment without. On an error all is as it was.
func (d *Datapath) Grow(size layout.Size) error {
	maps, err := newMaps(size, d.grace.Wait)
	if err != nil {
		return fmt.Errorf("datapath: grow: %w", Unlocked(err))
	}
	copied, err := d.table.CopyTo(maps, size)
	if err == nil {
		err = copied.Table().Check()
	}
	if err != nil {
		maps.Close()
		return fmt.Errorf("datapath: grow: %w", err)
	}
	loaded, err := loadPrograms(d.options.Home, maps.byName, d.shared)
	if err != nil {
		maps.Close()
		return fmt.Errorf("datapath: grow: %w", err)
	}
	next := layoutDir{layout.Version, d.current.number + 1}
	dir := filepath.Join(d.root, next.String())
	if err := maps.pin(dir); err != nil {
		loaded.close()
		maps.Close()
		return fmt.Errorf("datapath: grow: %w", errors.Join(err, os.RemoveAll(dir)))
	}
	old := *d
	d.current, d.maps, d.table, d.programs = next, maps, copied.Table(), loaded
	if d.attached {
		if err := d.Attach(); err != nil {
			// Some hooks may run the new programs: both sets of maps are whole and
			// say the same, so either will do. Try to go back.
			*d = old
			back := d.links.attach(filepath.Join(d.root, linksName), d.options.Cgroup, d.programs)
			loaded.close()
			maps.Close()
			return fmt.Errorf("datapath: grow: %w", errors.Join(err, back, os.RemoveAll(dir)))
		}
	}
	if err := d.grace.Wait(); err != nil {
		d.options.Log.Warn("no grace period after growing: some counts may be lost", "error", err)
	}
	copied.CatchUp()
	old.programs.close()
	old.maps.Close()
	return nil
}

// Table is what stands in the maps. It is another one after Grow.
func (d *Datapath) Table() *layout.Table { return d.table }

// Maps are the maps of the layout. They are others after Grow.
func (d *Datapath) Maps() *Maps { return d.maps }

// Shared returns one of the maps that stay.
func (d *Datapath) Shared(name string) *ebpf.Map { return d.shared[name] }

// Program is the program of a hook. It is another one after Grow.
func (d *Datapath) Program(hook string) *ebpf.Program { return d.programs[hook] }

// State is what is marked as applied.
func (d *Datapath) State() dataplane.State { return d.maps.Marked() }

// Check compares the kernel with what this process did there: the links, the pins,
// and the frontends. The error says what is different.
func (d *Datapath) Check() error {
	if d.attached {
		if err := checkLinks(filepath.Join(d.root, linksName), d.options.Cgroup, d.programs); err != nil {
			return err
		}
	}
	if pin := d.unpinned(); pin != "" {
		return fmt.Errorf("a map is not pinned at %s any more", pin)
	}
	return d.table.Check()
}

// Repair makes right what Check found: it restores frontends, pins and links.
func (d *Datapath) Repair() error {
	d.table.Repair()
	return errors.Join(d.repin(), d.Attach())
}

// pin is where a map is to be pinned.
type pin struct {
	path string
	of   *ebpf.Map
}

// pins lists all of them, the one that makes a layout whole last.
func (d *Datapath) pins() []pin {
	var out []pin
	for _, name := range sharedMaps() {
		out = append(out, pin{filepath.Join(d.root, sharedName, name), d.shared[name]})
	}
	for _, name := range layoutMaps() {
		out = append(out, pin{filepath.Join(d.root, d.current.String(), name), d.maps.byName[name]})
	}
	return out
}

// unpinned returns a pin that is missing, empty if none is.
func (d *Datapath) unpinned() string {
	for _, p := range d.pins() {
		if !exists(p.path) {
			return p.path
		}
	}
	return ""
}

// repin makes the pins that are missing, each of a copy, as objects that were pinned
// once do not take a second place by themselves.
func (d *Datapath) repin() error {
	for _, p := range d.pins() {
		if exists(p.path) {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(p.path), 0o700); err != nil {
			return err
		}
		clone, err := p.of.Clone()
		if err != nil {
			return err
		}
		if err := errors.Join(clone.Pin(p.path), clone.Close()); err != nil {
			return err
		}
	}
	return nil
}

// Close gives up what this process holds. What is pinned stays, and works on.
func (d *Datapath) Close() {
	d.links.close()
	d.programs.close()
	if d.maps != nil {
		d.maps.Close()
	}
	for _, m := range d.shared {
		_ = m.Close()
	}
	if d.grace != nil {
		d.grace.Close()
	}
}
