package layout

// Kernel is the maps that a table fills: memory that programs read.
type Kernel interface {
	// Slots is the memory of slots at … at+n-1 of a family, in words.
	Slots(f Family, at uint32, n int) []uint64
	// Service is the memory of a place for a service: ServiceWords words.
	Service(place uint32) []uint64
	// Frontends is the memory of a family's frontends: the entries, and what is said
	// of each to sockets of other network namespaces. See Index.
	Frontends(f Family) (entries, foreign []uint64)

	// Grace returns when every program that was running has ended.
	Grace() error
}

// Size is how much the maps hold.
type Size struct {
	Frontends [Families]uint32
	Services  uint32
	Slots     [Families]uint32
}

// AtLeast is the larger of both in each respect.
func (s Size) AtLeast(o Size) Size {
	s.Services = max(s.Services, o.Services)
	for f := range Families {
		s.Frontends[f], s.Slots[f] = max(s.Frontends[f], o.Frontends[f]), max(s.Slots[f], o.Slots[f])
	}
	return s
}
