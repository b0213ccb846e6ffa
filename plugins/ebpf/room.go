package ebpf

import (
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/layout"
)

// needs is roughly what services take in the maps.
type needs struct {
	services  uint32
	frontends [layout.Families]uint32
	slots     [layout.Families]uint64
}

// add adds a service; nil takes nothing.
func (n *needs) add(svc *dataplane.Service) {
	if svc == nil {
		return
	}
	n.services++
	var used [layout.Families]bool
	for _, f := range svc.Frontends {
		family := layout.FamilyOf(f.Addr.Addr())
		n.frontends[family]++
		used[family] = true
	}
	endpoints, foreign, same := 0, 0, true
	for e := range svc.Endpoints.All() {
		endpoints++
		if !e.Foreign().Addr().IsLoopback() {
			foreign++
		}
		same = same && e.Foreign() == e.Addr
	}
	slots := uint64(layout.RegionSlots(endpoints))
	if !same || foreign < endpoints {
		slots += uint64(layout.RegionSlots(foreign))
	}
	for family, is := range used {
		if is {
			n.slots[family] += slots
		}
	}
}

// size is how large the maps of a table should be to take this as well, and never
// smaller than they are.
func (n *needs) size(t *layout.Table) layout.Size { return n.beside(t.Load(), t.Size()) }

// beside is how large maps should be that hold a load already, and never smaller than
// a size.
func (n *needs) beside(load layout.Load, size layout.Size) layout.Size {
	for f := range layout.Families {
		if n.frontends[f] > 0 {
			size.Frontends[f] = max(size.Frontends[f], roomFor(uint64(n.frontends[f])+uint64(load.Frontends)))
		}
		if n.slots[f] > 0 {
			size.Slots[f] = max(size.Slots[f], roomFor(n.slots[f]+load.Slots[f]))
		}
	}
	size.Services = max(size.Services, roomFor(uint64(n.services)+uint64(load.Services)))
	return size
}

// roomFor leaves a fifth free, and room for a few in any case.
func roomFor(n uint64) uint32 {
	const grain = 1024
	return uint32(min((n+n/4)/grain*grain+grain, 1<<26))
}

// larger doubles what is more than half full; all of it if nothing is, as then the
// room is in too small pieces.
func (s settings) larger(t *layout.Table) layout.Size {
	size, load := t.Size(), t.Load()
	grown := size
	double := func(n *uint32, used uint64) {
		if used*2 > uint64(*n) {
			*n *= 2
		}
	}
	for f := range layout.Families {
		double(&grown.Slots[f], load.Slots[f])
		double(&grown.Frontends[f], uint64(load.Frontends))
	}
	double(&grown.Services, uint64(load.Services))
	if grown == size {
		for f := range layout.Families {
			grown.Slots[f] *= 2
		}
	}
	return s.clip(grown)
}
