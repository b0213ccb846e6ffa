package dataplane

// Usable returns the endpoints that new connections should go to, in the order
// of their ids. Draining ones and those of weight 0 are left out. Suspect ones
// are left out while at least half of the rest are better; beyond that the
// suspicion says more about this node's network than about theirs, and all of
// them stay.
func (s *Service) Usable() []Endpoint {
	var ready, suspect int
	for e := range s.Endpoints.All() {
		switch {
		case e.State == Draining || e.Weight == 0:
		case e.State == Suspect:
			suspect++
		default:
			ready++
		}
	}
	keepSuspects := ready < suspect
	usable := make([]Endpoint, 0, ready+suspect)
	for e := range s.Endpoints.All() {
		if e.State != Draining && e.Weight != 0 && (e.State != Suspect || keepSuspects) {
			usable = append(usable, e)
		}
	}
	return usable
}
