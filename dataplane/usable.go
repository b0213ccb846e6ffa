package dataplane

// Usable returns the endpoints that new connections should go to. Draining
// ones and those of weight 0 are left out. Suspect ones are left out while at
// least half of the rest are better; beyond that the suspicion says more about
// this node's network than about theirs, and all of them stay.
//
// The result shares memory with s where nothing is left out: do not write.
func (s *Service) Usable() []Endpoint {
	var ready, suspect int
	for _, e := range s.Endpoints {
		switch {
		case e.State == Draining || e.Weight == 0:
		case e.State == Suspect:
			suspect++
		default:
			ready++
		}
	}
	keepSuspects := ready < suspect
	if want := ready + suspect; keepSuspects && want == len(s.Endpoints) || suspect == 0 && ready == len(s.Endpoints) {
		return s.Endpoints
	}
	usable := make([]Endpoint, 0, ready+suspect)
	for _, e := range s.Endpoints {
		if e.State != Draining && e.Weight != 0 && (e.State != Suspect || keepSuspects) {
			usable = append(usable, e)
		}
	}
	return usable
}
