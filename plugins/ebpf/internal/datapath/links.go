package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// links are those of a process by the name of their hook. It keeps them open: so
// hooks run on where somebody removes the pins, or the file system that they are in.
type links map[string]link.Link

// keep holds a link, in the place of the one before.
func (ls links) keep(hook string, l link.Link) {
	if was := ls[hook]; was != nil && was != l {
		_ = was.Close()
	}
	ls[hook] = l
}

func (ls links) close() {
	for _, l := range ls {
		_ = l.Close()
	}
	clear(ls)
}

// attach lets every hook of a cgroup run these programs: links that are pinned
// there, or held, are led to them in place, the others are made.
func (ls links) attach(dir, cgroup string, p programs) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	before, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	fresh := len(before) == 0 && len(ls) == 0
	for _, h := range Hooks() {
		l, err := attachOne(filepath.Join(dir, h.Name), cgroup, h, p[h.Name], ls[h.Name])
		if err != nil {
			err = fmt.Errorf("hook %s of %s: %w", h.Name, cgroup, err)
			if fresh {
				ls.close()
				err = errors.Join(err, detachAll(dir)) // some hooks are no data plane
			}
			return err
		}
		ls.keep(h.Name, l)
	}
	return nil
}

// detachAll ends the links that are pinned in a directory.
func detachAll(dir string) error {
	var all error
	for _, h := range slices.Backward(Hooks()) {
		all = errors.Join(all, detach(filepath.Join(dir, h.Name)))
	}
	return all
}

func attachOne(pin, cgroup string, h Hook, p *ebpf.Program, held link.Link) (link.Link, error) {
	old, err := link.LoadPinnedLink(pin, nil)
	switch {
	case errors.Is(err, fs.ErrNotExist) && held != nil && isAt(held, cgroup, h) == nil:
		return held, pinAgain(held, pin, p)
	case errors.Is(err, fs.ErrNotExist):
		return attachNew(pin, cgroup, h, p)
	case err != nil:
		return nil, fmt.Errorf("pinned link: %w", err)
	}
	if err := isAt(old, cgroup, h); err == nil {
		err = old.Update(p)
		if err == nil {
			return old, nil
		}
		if !errors.Is(err, unix.ENOLINK) {
			return nil, errors.Join(err, old.Close())
		}
	}
	defer old.Close()
	// It is of a cgroup that was removed, or that is not ours any more. First the
	// new one, then the old: to run twice does no harm, as what was translated is
	// no frontend.
	if err := os.Remove(pin); err != nil {
		return nil, fmt.Errorf("the pin of a link that is of no use: %w", err)
	}
	return attachNew(pin, cgroup, h, p)
}

// pinAgain leads a link to a program whose pin somebody removed.
func pinAgain(l link.Link, pin string, p *ebpf.Program) error {
	if err := l.Update(p); err != nil {
		return err
	}
	// To the library it is pinned still, and would not be a second time.
	if err := errors.Join(l.Unpin(), l.Pin(pin)); err != nil {
		return fmt.Errorf("pin again: %w", err)
	}
	return nil
}

func attachNew(pin, cgroup string, h Hook, p *ebpf.Program) (link.Link, error) {
	l, err := link.AttachCgroup(link.CgroupOptions{Path: cgroup, Attach: h.Attach, Program: p})
	if errors.Is(err, unix.EPERM) {
		return nil, fmt.Errorf("%w: a program is attached there, or above, that lets no other run beside it: find it with `bpftool cgroup show %s`", err, cgroup)
	}
	if err != nil {
		return nil, err
	}
	if err := l.Pin(pin); err != nil {
		return nil, errors.Join(fmt.Errorf("pin: %w", err), l.Close())
	}
	return l, nil
}

// errElsewhere is wrapped by what isAt found.
var errElsewhere = errors.New("the link is not at the cgroup")

// isAt checks that a link is of a hook of the cgroup at a path as it is now.
func isAt(l link.Link, cgroup string, h Hook) error {
	info, err := l.Info()
	if err != nil {
		return fmt.Errorf("link: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Stat(cgroup, &st); err != nil {
		return fmt.Errorf("cgroup %s: %w", cgroup, err)
	}
	c := info.Cgroup()
	if c == nil || c.CgroupId != st.Ino || uint32(c.AttachType) != uint32(h.Attach) {
		return fmt.Errorf("%w: %s is for %+v, want cgroup %d", errElsewhere, h.Name, c, st.Ino)
	}
	return nil
}

// checkLinks compares the links with what they should be: there, at the cgroup,
// and running one of our programs.
func checkLinks(dir, cgroup string, p programs) error {
	for _, h := range Hooks() {
		if err := checkOne(filepath.Join(dir, h.Name), cgroup, h, p[h.Name]); err != nil {
			return fmt.Errorf("hook %s: %w", h.Name, err)
		}
	}
	return nil
}

func checkOne(pin, cgroup string, h Hook, p *ebpf.Program) error {
	l, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		return fmt.Errorf("pinned link: %w", err)
	}
	defer l.Close()
	if err := isAt(l, cgroup, h); err != nil {
		return err
	}
	info, err := l.Info()
	if err != nil {
		return fmt.Errorf("link: %w", err)
	}
	ours, err := p.Info()
	if err != nil {
		return fmt.Errorf("program: %w", err)
	}
	if id, ok := ours.ID(); ok && id != info.Program {
		return fmt.Errorf("it runs program %d, ours is %d", info.Program, id)
	}
	return nil
}

// detach ends a pinned link for good, also if another process has it open.
func detach(pin string) error {
	l, err := link.LoadPinnedLink(pin, nil)
	if err == nil {
		defer l.Close()
		// Not every kernel can; where it cannot, the last who closes it does.
		if d, ok := l.(interface{ Detach() error }); ok {
			_ = d.Detach()
		}
	}
	if err := os.Remove(pin); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
