package membership

import (
	"bytes"
	"testing"
)

func TestPacketQueueIsBoundedInNumberAndBytes(t *testing.T) {
	for size, want := range map[int]int{100: queuedPackets, 60_000: queuedBytes / 60_000} {
		q, data := newPacketQueue(), make([]byte, size)
		fit := 0
		for range 2 * queuedPackets {
			if q.put(addrOf(1), data) {
				fit++
			}
		}
		if fit != want {
			t.Errorf("%d packets of %d bytes fit, want %d", fit, size, want)
		}
		for range fit {
			q.free(<-q.ch)
		}
		if left := q.bytes.Load(); left != 0 {
			t.Errorf("an empty queue counts %d bytes", left)
		}
	}
}

func TestPacketsKeepTheirBytes(t *testing.T) {
	q, buf := newPacketQueue(), []byte("first")
	q.put(addrOf(1), buf)
	copy(buf, "xxxxx") // the reader's buffer is used again
	q.put(addrOf(2), buf)
	p := <-q.ch
	if p.from != addrOf(1) || !bytes.Equal(p.data, []byte("first")) {
		t.Errorf("got %q from %v", p.data, p.from)
	}
}
