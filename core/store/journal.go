package store

import "sort"

// journal lists all writes in their order, for watches that begin in the past.
// It is a value: a copy keeps what it saw, while the original is appended to
// behind that.
type journal struct {
	full [][]write // of chunkWrites elements each
	tail []write
}

// write says which key has a version of which revision.
type write struct {
	revision int64
	key      string
}

const chunkWrites = 512

func (j *journal) add(w write) {
	if len(j.tail) == chunkWrites {
		j.full = append(j.full, j.tail)
		j.tail = nil
	}
	if j.tail == nil {
		j.tail = make([]write, 0, chunkWrites)
	}
	j.tail = append(j.tail, w)
}

// dropBefore forgets whole chunks that end before a revision.
func (j *journal) dropBefore(revision int64) {
	n := sort.Search(len(j.full), func(i int) bool { return j.full[i][chunkWrites-1].revision >= revision })
	if n > 0 {
		j.full = append([][]write(nil), j.full[n:]...) // so that the chunks are let go
	}
}

// since yields the writes of a revision and later ones.
func (j journal) since(revision int64, yield func(write) bool) {
	first := sort.Search(len(j.full), func(i int) bool { return j.full[i][chunkWrites-1].revision >= revision })
	for _, chunk := range j.full[first:] {
		if !chunkSince(chunk, revision, yield) {
			return
		}
	}
	chunkSince(j.tail, revision, yield)
}

func chunkSince(chunk []write, revision int64, yield func(write) bool) bool {
	i := sort.Search(len(chunk), func(i int) bool { return chunk[i].revision >= revision })
	for _, w := range chunk[i:] {
		if !yield(w) {
			return false
		}
	}
	return true
}
