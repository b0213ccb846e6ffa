package transfer

import (
	"slices"

	"github.com/fairlead/fairlead/dataplane"
)

// handles says which service a handle names. Hosts count handles up from 1, and
// then a list takes half the memory of a map.
type handles struct {
	list []dataplane.Key          // of handle 1, 2, …; without a name: none
	rest map[uint32]dataplane.Key // of those that came out of order
	gaps int                      // Invariant: how many of list have no name
}

// maxGaps bounds what services that are gone leave behind in a list: a handle
// is used once.
const maxGaps = 1024

func (h *handles) get(handle uint32) (k dataplane.Key, known bool) {
	if i := int64(handle) - 1; i >= 0 && i < int64(len(h.list)) && h.list[i].Name != "" {
		return h.list[i], true
	}
	k, known = h.rest[handle]
	return k, known
}

func (h *handles) set(handle uint32, k dataplane.Key) {
	switch i := int64(handle) - 1; {
	case i == int64(len(h.list)):
		h.list = append(h.list, k)
		delete(h.rest, handle)
	case i >= 0 && i < int64(len(h.list)):
		if h.list[i].Name == "" {
			h.gaps--
		}
		h.list[i] = k
		delete(h.rest, handle)
	default:
		if h.rest == nil {
			h.rest = make(map[uint32]dataplane.Key)
		}
		h.rest[handle] = k
	}
}

func (h *handles) remove(handle uint32) {
	delete(h.rest, handle)
	i := int64(handle) - 1
	if i < 0 || i >= int64(len(h.list)) || h.list[i].Name == "" {
		return
	}
	h.list[i] = dataplane.Key{}
	if h.gaps++; h.gaps > maxGaps && h.gaps > len(h.list)/2 {
		old := h.list
		h.list, h.gaps = nil, 0
		for i, k := range old {
			if k.Name != "" {
				h.set(uint32(i+1), k)
			}
		}
	}
}

// trim gives back what the list has in reserve.
func (h *handles) trim() { h.list = slices.Clone(h.list) }
