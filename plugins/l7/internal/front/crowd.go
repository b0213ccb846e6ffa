package front

import (
	"cmp"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/plugins/l7/internal/files"
)

const (
	// reclaimShare is the part of a full crowd that is asked to go at once, so
	// that the next ones who come need not search again.
	reclaimShare = 64
	// reclaimAfter is how long a connection has to have waited to be closed for
	// another: a request may be on its way over a young one.
	reclaimAfter = 250 * time.Millisecond
	// reclaimPause is how long a search that found nobody is not repeated: it
	// looks at everybody.
	reclaimPause = 100 * time.Millisecond
	// refusalTime and refusals bound what a connection that is turned away may
	// cost: how long it may take to read why, and how many may do so at once, as
	// a part of the descriptors that are kept for all but requests.
	refusalTime   = 500 * time.Millisecond
	refusalsShare = 4
)

// crowd is the connections that came in by one door and are still there, tunnels
// included. There is a bound: who comes above it takes the place of one that
// waits for its next request, or for the rest of a head, the longest waiting
// first; if none does, it is turned away.
type crowd struct {
	turnedAway chan struct{} // a place for each that still reads why

	mu       sync.Mutex
	all      map[*visitor]struct{}
	searched time.Time // when nobody was found that waits
}

func newCrowd() crowd {
	return crowd{turnedAway: make(chan struct{}, max(1, files.Spare()/refusalsShare)), all: map[*visitor]struct{}{}}
}

// visitor is a connection of the crowd.
type visitor struct {
	*net.TCPConn
	crowd   *crowd
	waiting atomic.Int64 // unix ns since when there is no request; 0: there is one
	metrics *metrics
}

// unread reports whether bytes of a request are there that its server has not
// read yet.
func (c *visitor) unread() bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCINQ) })
	return n > 0
}

// Close ends the connection and leaves the crowd.
func (c *visitor) Close() error {
	c.crowd.mu.Lock()
	c.crowd.remove(c)
	c.crowd.mu.Unlock()
	return c.TCPConn.Close()
}

// remove forgets c, if that has not happened; mu is held.
func (w *crowd) remove(c *visitor) {
	if _, there := w.all[c]; there {
		delete(w.all, c)
		c.metrics.clients.Dec()
	}
}

// admit takes a connection in, or returns nil because there are most of them
// and none waits.
func (w *crowd) admit(tcp *net.TCPConn, most int, now time.Time, m *metrics) *visitor {
	if w.size() >= most && !w.reclaim(now) {
		return nil
	}
	c := &visitor{TCPConn: tcp, crowd: w, metrics: m}
	c.waiting.Store(now.UnixNano())
	m.clients.Inc()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all[c] = struct{}{}
	return c
}

func (w *crowd) size() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.all)
}

// reclaim closes some of the connections without a request, and reports whether
// there were any.
func (w *crowd) reclaim(now time.Time) bool {
	type wait struct {
		c     *visitor
		since int64
	}
	var waits []wait
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.searched) < reclaimPause {
		return false
	}
	for c := range w.all {
		if since := c.waiting.Load(); since != 0 && now.UnixNano()-since >= int64(reclaimAfter) {
			waits = append(waits, wait{c, since})
		}
	}
	slices.SortFunc(waits, func(a, b wait) int { return cmp.Compare(a.since, b.since) })
	n, wanted := 0, max(1, len(w.all)/reclaimShare)
	for i := 0; i < len(waits) && n < wanted; i++ {
		c := waits[i].c
		if c.unread() {
			continue
		}
		w.remove(c)
		_ = c.TCPConn.Close() // its server sees the end, and closes it once more
		c.metrics.reclaimed.Inc()
		n++
	}
	if n == 0 {
		w.searched = now
	}
	return n > 0
}

// turnAway says 503 to a connection that was not admitted, and closes it; where
// many come at once, it closes them without a word. It takes no longer than within.
func (w *crowd) turnAway(tcp *net.TCPConn, within time.Duration) {
	select {
	case w.turnedAway <- struct{}{}:
	default:
		_ = tcp.Close()
		return
	}
	go func() {
		defer func() { <-w.turnedAway }()
		defer tcp.Close()
		_ = tcp.SetDeadline(time.Now().Add(within))
		// Clients take an answer before their request for a fault. Closing with
		// bytes unread would reset the connection, and the answer might be lost.
		if _, err := tcp.Read(make([]byte, 1)); err != nil {
			return
		}
		if _, err := io.WriteString(tcp, fullAnswer()); err == nil && tcp.CloseWrite() == nil {
			_, _ = io.CopyN(io.Discard, tcp, 64<<10)
		}
	}()
}

// reasonFull is the X-Fairlead-Reason of who is turned away.
const reasonFull = "too-many-connections"

func fullAnswer() string {
	const text = "fairlead: too many connections\n"
	return "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: " + strconv.Itoa(len(text)) +
		"\r\nConnection: close\r\nRetry-After: 1\r\nX-Content-Type-Options: nosniff\r\nX-Fairlead-Reason: " + reasonFull + "\r\n\r\n" + text
}
