package http1

import (
	"cmp"
	"time"
)

// Limits bound what one request may take; zero values are the defaults.
type Limits struct {
	HeaderBytes   int           // request line and header fields; 32 KiB
	HeaderFields  int           // 256
	HeaderTimeout time.Duration // for the rest of a head of which a part is there; 10 s
	H2C           bool          // let HTTP/2 with prior knowledge pass, unscanned
}

// Limits that nobody needs to set.
const (
	// maxTrailerBytes is below what net/http takes, which is 4 KiB.
	maxTrailerBytes = 2 << 10
	// maxChunkLine holds a size and an extension such as a signature.
	maxChunkLine = 512
	// maxChunkExcess is how much framing a body may have beyond 16 bytes a
	// chunk and twice its data, as in net/http.
	maxChunkExcess = 16 << 10
)

func (l Limits) withDefaults() Limits {
	l.HeaderBytes = cmp.Or(l.HeaderBytes, 32<<10)
	l.HeaderFields = cmp.Or(l.HeaderFields, 256)
	l.HeaderTimeout = cmp.Or(l.HeaderTimeout, 10*time.Second)
	return l
}
