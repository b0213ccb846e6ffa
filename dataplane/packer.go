package dataplane

import (
	"encoding/binary"
	"slices"
)

// Packer makes a list of endpoints that come one by one. In the order of their
// ids they cost nothing but the bytes of the list. The zero Packer is empty,
// and so is one after Done, which may be used again.
type Packer struct {
	buf      []byte // room for the number of entries, then the entries
	n        int
	last     uint64
	unsorted bool
}

// Add appends an endpoint. Of several with one id the last counts.
func (p *Packer) Add(e Endpoint) {
	if p.n == 0 {
		p.buf = append(p.buf[:0], make([]byte, binary.MaxVarintLen64)...)
	}
	p.unsorted = p.unsorted || p.n > 0 && e.ID <= p.last
	p.buf = e.normal().appendTo(p.buf)
	p.n, p.last = p.n+1, e.ID
}

// Done returns the list of what was added.
func (p *Packer) Done() Endpoints {
	if p.n == 0 {
		return Endpoints{}
	}
	var head [binary.MaxVarintLen64]byte
	size := binary.PutUvarint(head[:], uint64(p.n))
	begin := binary.MaxVarintLen64 - size
	copy(p.buf[begin:], head[:size])
	l := Endpoints{packed: string(p.buf[begin:])}
	unsorted := p.unsorted
	p.n, p.unsorted = 0, false
	if unsorted {
		list := l.Slice()
		slices.SortStableFunc(list, byID)
		return NewEndpoints(lastOfEach(list)...)
	}
	return l
}
