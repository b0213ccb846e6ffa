package datapath

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/layout"
)

// stampMap is pinned last: a directory without it is not whole.
const stampMap = bpf.SocketMapStamp

// layoutMaps are made anew with each layout, the last one last.
func layoutMaps() []string {
	return []string{
		bpf.SocketMapFrontends4, bpf.SocketMapFrontends6, bpf.SocketMapForeign4, bpf.SocketMapForeign6,
		bpf.SocketMapEndpoints4, bpf.SocketMapEndpoints6,
		bpf.SocketMapServices, stampMap,
	}
}

// sharedMaps stay when a layout is replaced.
func sharedMaps() []string {
	return []string{
		bpf.SocketMapSockets, bpf.SocketMapDatagrams, bpf.SocketMapBonds, bpf.SocketMapReasons, bpf.SocketMapDenials, bpf.SocketMapFlows,
		bpf.SocketMapSettings,
	}
}

// Maps are the maps of one layout. They are a layout.Kernel.
type Maps struct {
	byName map[string]*ebpf.Map
	grace  func() error

	frontends, foreign [layout.Families]mapping
	slots              [layout.Families]mapping
	services           mapping
	stamp              mapping
}

var _ layout.Kernel = (*Maps)(nil)

// sized sets how much the maps of a layout hold.
func sized(spec *ebpf.CollectionSpec, size layout.Size) {
	buckets4, buckets6 := layout.V4.Buckets(size.Frontends[layout.V4]), layout.V6.Buckets(size.Frontends[layout.V6])
	for name, n := range map[string]uint32{
		bpf.SocketMapFrontends4: buckets4, bpf.SocketMapForeign4: buckets4, bpf.SocketMapFrontends6: buckets6, bpf.SocketMapForeign6: buckets6,
		bpf.SocketMapServices:   size.Services,
		bpf.SocketMapEndpoints4: size.Slots[layout.V4], bpf.SocketMapEndpoints6: size.Slots[layout.V6],
	} {
		spec.Maps[name].MaxEntries = n
	}
}

// newMaps makes the maps of a layout.
func newMaps(size layout.Size, grace func() error) (*Maps, error) {
	spec, err := bpf.LoadSocket()
	if err != nil {
		return nil, err
	}
	sized(spec, size)
	m := &Maps{byName: make(map[string]*ebpf.Map), grace: grace}
	for _, name := range layoutMaps() {
		if m.byName[name], err = ebpf.NewMap(spec.Maps[name]); err != nil {
			m.Close()
			return nil, fmt.Errorf("map %s of %d entries: %w", name, spec.Maps[name].MaxEntries, err)
		}
	}
	return m.mapped()
}

// openMaps opens pinned maps; they have to be those of this layout.
func openMaps(dir string, grace func() error) (*Maps, error) {
	spec, err := bpf.LoadSocket()
	if err != nil {
		return nil, err
	}
	m := &Maps{byName: make(map[string]*ebpf.Map), grace: grace}
	for _, name := range layoutMaps() {
		if m.byName[name], err = openMap(dir, name, spec.Maps[name]); err != nil {
			m.Close()
			return nil, err
		}
	}
	return m.mapped()
}

// openMap opens a pinned map that is as its specification says, but for its size.
func openMap(dir, name string, want *ebpf.MapSpec) (*ebpf.Map, error) {
	m, err := ebpf.LoadPinnedMap(filepath.Join(dir, name), nil)
	if err != nil {
		return nil, fmt.Errorf("pinned map %s: %w", name, err)
	}
	same := *want
	same.MaxEntries = m.MaxEntries()
	if err := same.Compatible(m); err != nil {
		_ = m.Close()
		return nil, fmt.Errorf("pinned map %s: %w", name, err)
	}
	return m, nil
}

// mapped maps what is memory.
func (m *Maps) mapped() (*Maps, error) {
	var err error
	for name, to := range map[string]*mapping{
		bpf.SocketMapServices: &m.services, stampMap: &m.stamp,
		bpf.SocketMapFrontends4: &m.frontends[layout.V4], bpf.SocketMapFrontends6: &m.frontends[layout.V6],
		bpf.SocketMapForeign4: &m.foreign[layout.V4], bpf.SocketMapForeign6: &m.foreign[layout.V6],
		bpf.SocketMapEndpoints4: &m.slots[layout.V4], bpf.SocketMapEndpoints6: &m.slots[layout.V6],
	} {
		if *to, err = mapped(m.byName[name]); err != nil {
			m.Close()
			return nil, err
		}
	}
	for f := range layout.Families {
		entries, foreign := m.Frontends(f)
		if buckets := uint32(len(entries) * f.Ways() / len(foreign)); f.Buckets(f.Frontends(buckets)) != buckets {
			m.Close()
			return nil, fmt.Errorf("%w: %d words for %v frontends, and %d beside", layout.ErrForeign, len(entries), f, len(foreign))
		}
	}
	return m, nil
}

// pin pins the maps in a directory, which is made.
func (m *Maps) pin(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, name := range layoutMaps() {
		if err := m.byName[name].Pin(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("pin map %s: %w", name, err)
		}
	}
	return nil
}

// Close gives the maps up. What is pinned, or used by a program, stays.
func (m *Maps) Close() {
	m.services.close()
	m.stamp.close()
	for f := range layout.Families {
		m.frontends[f].close()
		m.foreign[f].close()
		m.slots[f].close()
	}
	for _, e := range m.byName {
		_ = e.Close()
	}
}

// Size is how much the maps hold; of frontends, with half of the entries free.
func (m *Maps) Size() layout.Size {
	n := func(name string) uint32 { return m.byName[name].MaxEntries() }
	return layout.Size{
		Frontends: [layout.Families]uint32{
			layout.V4.Frontends(n(bpf.SocketMapFrontends4)), layout.V6.Frontends(n(bpf.SocketMapFrontends6)),
		},
		Services: n(bpf.SocketMapServices),
		Slots:    [layout.Families]uint32{n(bpf.SocketMapEndpoints4), n(bpf.SocketMapEndpoints6)},
	}
}

// Slots implements layout.Kernel.
func (m *Maps) Slots(f layout.Family, at uint32, n int) []uint64 {
	return m.slots[f].words()[int(at)*f.SlotWords() : (int(at)+n)*f.SlotWords()]
}

// Service implements layout.Kernel.
func (m *Maps) Service(place uint32) []uint64 {
	return m.services.words()[int(place)*layout.ServiceWords : (int(place)+1)*layout.ServiceWords]
}

// Frontends implements layout.Kernel.
func (m *Maps) Frontends(f layout.Family) (entries, foreign []uint64) {
	return m.frontends[f].words(), m.foreign[f].words()
}

// Grace implements layout.Kernel.
func (m *Maps) Grace() error { return m.grace() }

// LockedBytes is the memory of the maps in the kernel.
func (m *Maps) LockedBytes() uint64 {
	var sum uint64
	for _, e := range m.byName {
		if info, err := e.Info(); err == nil {
			n, _ := info.Memlock()
			sum += n
		}
	}
	return sum
}
