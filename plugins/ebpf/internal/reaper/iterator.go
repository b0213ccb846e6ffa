package reaper

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/fairlead/fairlead/bpf"
)

// Iterator ends connections by programs in the kernel.
type Iterator struct {
	doomed, passes *ebpf.Map
	iterators      []*link.Iter
	first          passes // what the first pass noted, to learn the length of a jiffy
}

// passes is what the programs count; see bpf/destroy.c.
type passes struct{ Ended, Spared, Jiffies, AtNs uint64 }

// key and value are those of the map of the doomed.
type key struct {
	Service, Zero uint32
	Endpoint      uint64
}
type value struct{ SilentJiffies, Zero uint32 }

// NewIterator loads the programs, which read this map of socket storage. It fails on
// kernels without socket iterators or bpf_sock_destroy (6.5).
func NewIterator(sockets *ebpf.Map) (*Iterator, error) {
	spec, err := bpf.LoadDestroy()
	if err != nil {
		return nil, fmt.Errorf("reaper: %w", err)
	}
	delete(spec.Maps, bpf.DestroyMapDatagrams) // of headers that the programs share with others
	c, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		MapReplacements: map[string]*ebpf.Map{bpf.DestroyMapSockets: sockets},
	})
	if err != nil {
		return nil, fmt.Errorf("reaper: %w", err)
	}
	defer c.Close()
	r := &Iterator{doomed: c.DetachMap(bpf.DestroyMapDoomed), passes: c.DetachMap(bpf.DestroyMapPasses)}
	for _, name := range []string{bpf.DestroyProgDestroyTcp, bpf.DestroyProgDestroyUdp} {
		it, err := link.AttachIter(link.IterOptions{Program: c.Programs[name]})
		if err != nil {
			r.Close()
			return nil, fmt.Errorf("reaper: iterator %s: %w", name, err)
		}
		r.iterators = append(r.iterators, it)
	}
	// A pass in which nobody is doomed tells the time.
	if err = r.walk(); err == nil {
		err = r.passes.Lookup(uint32(0), &r.first)
	}
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("reaper: a first pass: %w", err)
	}
	return r, nil
}

// Close gives the programs up.
func (r *Iterator) Close() {
	for _, it := range r.iterators {
		_ = it.Close()
	}
	_, _ = r.doomed.Close(), r.passes.Close()
}

// Pass goes once through the sockets of each network namespace, and returns how
// many it ended.
func (r *Iterator) Pass(list []Doom) (ended int, err error) {
	if err := r.condemn(list); err != nil {
		return 0, errors.Join(err, r.pardon(list))
	}
	var before, after passes
	err = r.passes.Lookup(uint32(0), &before)
	err = errors.Join(err, everywhere(r.walk))
	err = errors.Join(err, r.passes.Lookup(uint32(0), &after), r.pardon(list))
	if err != nil {
		err = fmt.Errorf("reaper: %w", err)
	}
	return int(after.Ended - before.Ended), err
}

// condemn writes the list where the programs read it.
func (r *Iterator) condemn(list []Doom) error {
	hz := r.jiffiesPerSecond()
	for _, d := range list {
		var v value
		if d.Silent > 0 {
			if hz == 0 {
				continue // who cannot be told apart is spared, until its drain time is over
			}
			v.SilentJiffies = uint32(min(1+d.Silent.Seconds()*hz, 1<<31))
		}
		k := key{Service: d.Service, Endpoint: d.Endpoint}
		var old value
		if r.doomed.Lookup(k, &old) == nil && old.SilentJiffies == 0 {
			continue // the same without mercy
		}
		if err := r.doomed.Put(k, v); err != nil {
			return fmt.Errorf("the list of endpoints that are gone: %w", err)
		}
	}
	return nil
}

func (r *Iterator) pardon(list []Doom) (err error) {
	for _, d := range list {
		if e := r.doomed.Delete(key{Service: d.Service, Endpoint: d.Endpoint}); !errors.Is(e, ebpf.ErrKeyNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// jiffiesPerSecond is how the kernel counts, learnt from two passes; 0: they were
// too close.
func (r *Iterator) jiffiesPerSecond() float64 {
	var last passes
	if r.walk() != nil || r.passes.Lookup(uint32(0), &last) != nil {
		return 0
	}
	return Rate(last.Jiffies-r.first.Jiffies, time.Duration(last.AtNs-r.first.AtNs))
}

// Rate is the nearest of the rates that kernels are built with.
func Rate(jiffies uint64, d time.Duration) float64 {
	if d < 50*time.Millisecond {
		return 0
	}
	measured, best := float64(jiffies)/d.Seconds(), 0.0
	for _, hz := range []float64{100, 250, 300, 1000} {
		if best == 0 || max(hz, measured)/min(hz, measured) < max(best, measured)/min(best, measured) {
			best = hz
		}
	}
	return best
}

// walk goes through the sockets of this thread's network namespace.
func (r *Iterator) walk() error {
	for _, it := range r.iterators {
		f, err := it.Open()
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}
