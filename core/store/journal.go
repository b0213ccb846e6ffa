package store

import "sort"

// journal lists all writes in their order, for watches that begin in the past.
// It is a value: a copy keeps what it saw, while the original is appended to
// behind that.
type journal struct {
	full [][]ref // of at most chunkWrites elements each
	tail []ref
}

const chunkWrites = 512

func (j *journal) add(r ref) {
	if len(j.tail) == chunkWrites {
		j.full = append(j.full, j.tail)
		j.tail = nil
	}
	if j.tail == nil {
		j.tail = make([]ref, 0, chunkWrites)
	}
	j.tail = append(j.tail, r)
}

// dropBefore forgets what is before a revision.
func (j *journal) dropBefore(a *arena, revision int64) {
	n := j.first(a, revision)
	full := append([][]ref(nil), j.full[n:]...) // so that the chunks are let go
	if len(full) > 0 {
		full[0] = full[0][a.firstAfter(full[0], revision-1):]
	} else {
		j.tail = j.tail[a.firstAfter(j.tail, revision-1):]
	}
	j.full = full
}

// first returns which of the full chunks has the first write of a revision or later.
func (j *journal) first(a *arena, revision int64) int {
	return sort.Search(len(j.full), func(i int) bool { return a.mod(j.full[i][len(j.full[i])-1]) >= revision })
}

// since yields the writes of a revision and later ones.
func (j *journal) since(a *arena, revision int64, yield func(ref) bool) {
	first := j.first(a, revision)
	for i := first; i <= len(j.full); i++ {
		chunk := j.tail
		if i < len(j.full) {
			chunk = j.full[i]
		}
		if i == first {
			chunk = chunk[a.firstAfter(chunk, revision-1):]
		}
		for _, r := range chunk {
			if !yield(r) {
				return
			}
		}
	}
}
