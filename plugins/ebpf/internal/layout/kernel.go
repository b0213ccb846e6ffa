package layout

import "github.com/fairlead/fairlead/dataplane"

// Kernel is the maps that a table fills. What has no error is memory.
type Kernel interface {
	// Slots is the memory of slots at … at+n-1 of a family, header included.
	Slots(f Family, at uint32, n int) []byte
	// Hits is the memory that counts how often each of these was chosen.
	Hits(f Family, at uint32, n int) []uint64
	// Publish stores the two words of a frontend, each atomically.
	Publish(id uint32, home, foreign Publication)
	// Published loads them.
	Published(id uint32) (home, foreign Publication)

	// InsertFrontend lets an address lead to an id. It wraps ErrFull if the map
	// is.
	InsertFrontend(b dataplane.Binding, id uint32) error
	// DeleteFrontend undoes that. An address that is not there is no error.
	DeleteFrontend(b dataplane.Binding) error
	// NameService keeps a name for the next process.
	NameService(id uint32, k dataplane.Key) error
	// ForgetService undoes that.
	ForgetService(id uint32) error

	// InsertFrontends and NameServices are the same for many that are not there
	// yet, in few system calls. On an error any of them may be there.
	InsertFrontends(leads []Lead) error
	NameServices(names []Name) error

	// Grace returns when every program that was running has ended.
	Grace() error
}

// Lead is an address and the id that it leads to.
type Lead struct {
	Binding dataplane.Binding
	ID      uint32
}

// Name is the name of a service.
type Name struct {
	ID  uint32
	Key dataplane.Key
}

// Size is how much the maps hold.
type Size struct {
	Frontends [Families]uint32
	Services  uint32           // names
	Slots     [Families]uint32 // headers included
}

// IDs is how many frontends of all families there may be.
func (s Size) IDs() uint32 { return s.Frontends[V4] + s.Frontends[V6] }

// AtLeast is the larger of both in each respect.
func (s Size) AtLeast(o Size) Size {
	s.Services = max(s.Services, o.Services)
	for f := range Families {
		s.Frontends[f], s.Slots[f] = max(s.Frontends[f], o.Frontends[f]), max(s.Slots[f], o.Slots[f])
	}
	return s
}

// Dump is what is in the maps of a kernel, as found by a process that did not put
// it there.
type Dump struct {
	Frontends map[dataplane.Binding]uint32
	Services  map[uint32]dataplane.Key
}
