package datapath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/bpf"
	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/layout"
)

// stampMap is pinned last: a directory without it is not whole.
const stampMap = bpf.SocketMapStamp

// layoutMaps are made anew with each layout, the last one last.
func layoutMaps() []string {
	return []string{
		bpf.SocketMapFrontends4, bpf.SocketMapFrontends6, bpf.SocketMapPublications, bpf.SocketMapEndpoints4, bpf.SocketMapEndpoints6,
		bpf.SocketMapHits4, bpf.SocketMapHits6, bpf.SocketMapServices, stampMap,
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

	publications mapping
	slots, hits  [layout.Families]mapping
	stamp        mapping
}

var _ layout.Kernel = (*Maps)(nil)

// sized sets how much the maps of a layout hold.
func sized(spec *ebpf.CollectionSpec, size layout.Size) {
	for name, n := range map[string]uint32{
		bpf.SocketMapFrontends4: size.Frontends[layout.V4], bpf.SocketMapFrontends6: size.Frontends[layout.V6],
		bpf.SocketMapPublications: size.IDs() * uint32(layout.Scopes), bpf.SocketMapServices: size.Services,
		bpf.SocketMapEndpoints4: size.Slots[layout.V4], bpf.SocketMapEndpoints6: size.Slots[layout.V6],
		bpf.SocketMapHits4: size.Slots[layout.V4], bpf.SocketMapHits6: size.Slots[layout.V6],
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
		bpf.SocketMapPublications: &m.publications, stampMap: &m.stamp,
		bpf.SocketMapEndpoints4: &m.slots[layout.V4], bpf.SocketMapEndpoints6: &m.slots[layout.V6],
		bpf.SocketMapHits4: &m.hits[layout.V4], bpf.SocketMapHits6: &m.hits[layout.V6],
	} {
		if *to, err = mapped(m.byName[name]); err != nil {
			m.Close()
			return nil, err
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
	m.publications.close()
	m.stamp.close()
	for f := range layout.Families {
		m.slots[f].close()
		m.hits[f].close()
	}
	for _, e := range m.byName {
		_ = e.Close()
	}
}

// Size is how much the maps hold.
func (m *Maps) Size() layout.Size {
	n := func(name string) uint32 { return m.byName[name].MaxEntries() }
	return layout.Size{
		Frontends: [layout.Families]uint32{n(bpf.SocketMapFrontends4), n(bpf.SocketMapFrontends6)}, Services: n(bpf.SocketMapServices),
		Slots: [layout.Families]uint32{n(bpf.SocketMapEndpoints4), n(bpf.SocketMapEndpoints6)},
	}
}

// Slots implements layout.Kernel.
func (m *Maps) Slots(f layout.Family, at uint32, n int) []byte {
	return m.slots[f].bytes[int(at)*f.SlotBytes() : (int(at)+n)*f.SlotBytes()]
}

// Hits implements layout.Kernel.
func (m *Maps) Hits(f layout.Family, at uint32, n int) []uint64 {
	return m.hits[f].words()[at : int(at)+n]
}

// Publish implements layout.Kernel.
func (m *Maps) Publish(id uint32, home, foreign layout.Publication) {
	w := m.publications.words()[id*uint32(layout.Scopes):]
	atomic.StoreUint64(&w[layout.Home], uint64(home))
	atomic.StoreUint64(&w[layout.Foreign], uint64(foreign))
}

// Published implements layout.Kernel.
func (m *Maps) Published(id uint32) (home, foreign layout.Publication) {
	w := m.publications.words()[id*uint32(layout.Scopes):]
	return layout.Publication(atomic.LoadUint64(&w[layout.Home])), layout.Publication(atomic.LoadUint64(&w[layout.Foreign]))
}

func (m *Maps) frontends(f layout.Family) *ebpf.Map {
	return m.byName[[...]string{bpf.SocketMapFrontends4, bpf.SocketMapFrontends6}[f]]
}

// InsertFrontend implements layout.Kernel.
func (m *Maps) InsertFrontend(b dataplane.Binding, id uint32) error {
	return put(m.frontends(layout.FamilyOf(b.Addr.Addr())), layout.AppendKey(nil, b), id)
}

// DeleteFrontend implements layout.Kernel.
func (m *Maps) DeleteFrontend(b dataplane.Binding) error {
	return remove(m.frontends(layout.FamilyOf(b.Addr.Addr())), layout.AppendKey(nil, b))
}

// NameService implements layout.Kernel.
func (m *Maps) NameService(id uint32, k dataplane.Key) error {
	return put(m.byName[bpf.SocketMapServices], id, layout.AppendName(nil, k))
}

// InsertFrontends implements layout.Kernel.
func (m *Maps) InsertFrontends(leads []layout.Lead) error {
	var keys4 [][8]byte
	var keys6 [][20]byte
	var ids [layout.Families][]uint32
	for _, l := range leads {
		f := layout.FamilyOf(l.Binding.Addr.Addr())
		ids[f] = append(ids[f], l.ID)
		if key := layout.AppendKey(nil, l.Binding); f == layout.V4 {
			keys4 = append(keys4, [8]byte(key))
		} else {
			keys6 = append(keys6, [20]byte(key))
		}
	}
	if err := putAll(m.frontends(layout.V4), keys4, ids[layout.V4]); err != nil {
		return err
	}
	return putAll(m.frontends(layout.V6), keys6, ids[layout.V6])
}

// NameServices implements layout.Kernel.
func (m *Maps) NameServices(names []layout.Name) error {
	ids, texts := make([]uint32, len(names)), make([][layout.NameBytes]byte, len(names))
	for i, n := range names {
		ids[i] = n.ID
		copy(texts[i][:], n.Key.String()) // the rest is zeros
	}
	return putAll(m.byName[bpf.SocketMapServices], ids, texts)
}

// ForgetService implements layout.Kernel.
func (m *Maps) ForgetService(id uint32) error { return remove(m.byName[bpf.SocketMapServices], id) }

// Grace implements layout.Kernel.
func (m *Maps) Grace() error { return m.grace() }

func put(m *ebpf.Map, key, value any) error {
	err := m.Put(key, value)
	if errors.Is(err, unix.E2BIG) {
		return fmt.Errorf("%w: map %v", layout.ErrFull, m)
	}
	return err
}

// putAll puts many in one system call where the kernel can (5.6). Those before one
// that fails are there.
func putAll[K, V any](m *ebpf.Map, keys []K, values []V) error {
	if len(keys) == 0 {
		return nil
	}
	if n, err := m.BatchUpdate(keys, values, nil); err != nil {
		return fmt.Errorf("map %v: %d of %d entries: %w", m, n, len(keys), err)
	}
	return nil
}

func remove(m *ebpf.Map, key any) error {
	if err := m.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	return nil
}

// Dump reads what another process put into the maps.
func (m *Maps) Dump() (layout.Dump, error) {
	d := layout.Dump{Frontends: make(map[dataplane.Binding]uint32), Services: make(map[uint32]dataplane.Key)}
	frontend := func(key []byte, id uint32) error {
		b, err := layout.ParseKey(key)
		d.Frontends[b] = id
		return err
	}
	err := each(m.frontends(layout.V4), func(key [8]byte, id uint32) error { return frontend(key[:], id) })
	if err == nil {
		err = each(m.frontends(layout.V6), func(key [20]byte, id uint32) error { return frontend(key[:], id) })
	}
	if err == nil {
		err = each(m.byName[bpf.SocketMapServices], func(id uint32, name [layout.NameBytes]byte) error {
			k, err := layout.ParseName(name[:])
			d.Services[id] = k
			return err
		})
	}
	if err != nil {
		return d, fmt.Errorf("read the maps: %w", err)
	}
	return d, nil
}

// each calls f for all entries of a hash, thousands at a time where the kernel can
// (5.6).
func each[K, V any](m *ebpf.Map, f func(K, V) error) error {
	const chunk = 4096
	keys, values := make([]K, chunk), make([]V, chunk)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		if errors.Is(err, ebpf.ErrNotSupported) {
			return oneByOne(m, f)
		}
		for i := range n {
			if err := f(keys[i], values[i]); err != nil {
				return err
			}
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) { // the end
			return nil
		}
		if err != nil {
			return fmt.Errorf("map %v: %w", m, err)
		}
	}
}

func oneByOne[K, V any](m *ebpf.Map, f func(K, V) error) error {
	var k K
	var v V
	each := m.Iterate()
	for each.Next(&k, &v) {
		if err := f(k, v); err != nil {
			return err
		}
	}
	if err := each.Err(); err != nil {
		return fmt.Errorf("map %v: %w", m, err)
	}
	return nil
}

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
