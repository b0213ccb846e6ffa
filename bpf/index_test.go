package bpf

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
)

// entryKey is an address as it stands in the table of frontends; see
// headers/frontend.h.
type entryKey struct {
	six   bool
	words [3]uint64 // one of IPv4
}

func keyOf(a netip.AddrPort, p FakeTransport) entryKey {
	addr := a.Addr().Unmap()
	b := binary.BigEndian.AppendUint16(addr.AsSlice(), a.Port())
	b = append(b, byte(p), 0)
	b = append(b, make([]byte, 24-len(b))...)
	k := entryKey{six: addr.Is6()}
	for i := range k.words {
		k.words[i] = binary.NativeEndian.Uint64(b[8*i:])
	}
	return k
}

// entry is a place in the table.
type entry struct {
	six         bool
	bucket, way int
}

const (
	reach = 16
	ways4 = 4
	ways6 = 2
)

// places are those of a key: first those in its bucket, then those of the next.
func (k entryKey) places(yield func(entry) bool) {
	mix := func(x uint64) uint64 { x *= 0x9e3779b97f4a7c15; return x ^ x>>32 }
	at, ways := mix(mix(k.words[0])), ways4
	if k.six {
		at, ways = mix(mix(mix(mix(k.words[0])^k.words[1])^k.words[2])), ways6
	}
	for i := range reach {
		for way := range ways {
			if !yield(entry{k.six, int((uint32(at) + uint32(i)) % buckets), way}) {
				return
			}
		}
	}
}

func (l *lab) find(k entryKey) (entry, bool) {
	for e := range k.places {
		if l.key(e) == k.words {
			return e, true
		}
	}
	return entry{}, false
}

func (l *lab) free(k entryKey) entry {
	l.t.Helper()
	for e := range k.places {
		if l.key(e) == [3]uint64{} {
			return e
		}
	}
	l.t.Fatal("no room")
	return entry{}
}

// key is what stands in an entry.
func (l *lab) key(e entry) [3]uint64 {
	if e.six {
		var b FakeBucket6
		l.get(FakeMapFrontends6, uint32(e.bucket), &b)
		return b.Entry[e.way].Key
	}
	var b FakeBucket4
	l.get(FakeMapFrontends4, uint32(e.bucket), &b)
	return [3]uint64{b.Entry[e.way].Key}
}

// write lets an entry be of a key.
func (l *lab) write(e entry, key [3]uint64) {
	l.t.Helper()
	if e.six {
		var b FakeBucket6
		l.get(FakeMapFrontends6, uint32(e.bucket), &b)
		b.Entry[e.way].Key = key
		l.put(FakeMapFrontends6, uint32(e.bucket), b)
		return
	}
	var b FakeBucket4
	l.get(FakeMapFrontends4, uint32(e.bucket), &b)
	b.Entry[e.way].Key = key[0]
	l.put(FakeMapFrontends4, uint32(e.bucket), b)
}

// say sets what is said of an entry to sockets of a scope.
func (l *lab) say(e entry, scope FakeScope, word uint64) {
	l.t.Helper()
	switch {
	case scope == FakeScopeSCOPE_HOME && e.six:
		var b FakeBucket6
		l.get(FakeMapFrontends6, uint32(e.bucket), &b)
		b.Entry[e.way].Home = word
		l.put(FakeMapFrontends6, uint32(e.bucket), b)
	case scope == FakeScopeSCOPE_HOME:
		var b FakeBucket4
		l.get(FakeMapFrontends4, uint32(e.bucket), &b)
		b.Entry[e.way].Home = word
		l.put(FakeMapFrontends4, uint32(e.bucket), b)
	case e.six:
		var b FakeForeign6
		l.get(FakeMapForeign6, uint32(e.bucket), &b)
		b.Entry[e.way] = word
		l.put(FakeMapForeign6, uint32(e.bucket), b)
	default:
		var b FakeForeign4
		l.get(FakeMapForeign4, uint32(e.bucket), &b)
		b.Entry[e.way] = word
		l.put(FakeMapForeign4, uint32(e.bucket), b)
	}
}

// TestFrontendsOfFullBuckets: each of many frontends in a small table is found,
// wherever it found room, and leads to its own; what is not there is not found.
func TestFrontendsOfFullBuckets(t *testing.T) {
	for _, f := range forms() {
		t.Run(f.name, func(t *testing.T) {
			l := f.ready(t, nil)
			l.fills(f.six(), set+20, service, 0, slot{9, netip.AddrPortFrom(f.endpoints[0].Addr(), 7000)})
			word := func(n int) uint64 { return uint64(set+20) | uint64(FakePublicationFlagPUBLISHED)<<48 | uint64(n)<<32 }
			r := rand.New(rand.NewPCG(1, 1))
			there := make(map[uint16]entry)
			const most = buckets*ways6 - 4 // two are there, and two stay free
			for n := range 400 {
				at := uint16(1 + r.IntN(40))
				b := f
				b.frontend = netip.AddrPortFrom(f.frontend.Addr(), at)
				k := keyOf(b.frontend, udp)
				if e, is := there[at]; is {
					l.write(e, [3]uint64{0, 0, 1}) // which is no key of IPv6
					if !f.six() {
						l.write(e, [3]uint64{1})
					}
					delete(there, at)
				} else if len(there) < most {
					var e entry
					for e = range k.places {
						if key := l.key(e); key[0] <= 1 && key[1] == 0 && key[2] <= 1 {
							break
						}
					}
					l.write(e, k.words)
					l.say(e, FakeScopeSCOPE_HOME, word(1))
					l.say(e, FakeScopeSCOPE_FOREIGN, word(0))
					there[at] = e
				}
				if n%20 != 19 {
					continue
				}
				for at := uint16(1); at <= 40; at++ {
					to := netip.AddrPortFrom(f.frontend.Addr(), at)
					_, is := there[at]
					l.Netns = home
					if got := l.run(f.connect, udp, to); (got.to.Port() == 7000) != is {
						t.Fatalf("frontend %v, which is there: %v: %+v", to, is, got)
					}
					l.Netns = elsewhere
					if got := l.run(f.connect, udp, to); (got.counted[FakeReasonEMPTY_PASSED] == 1) != is {
						t.Fatalf("elsewhere frontend %v, which is there: %v: %+v", to, is, got)
					}
				}
			}
		})
	}
}
