package rules

import (
	"cmp"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/dataplane"
)

// fanout is the number of rules of a node at most. With 16 a packet makes 8.5 tests
// a level on average; fewer rules make more levels, more make more tests.
const fanout = 16

// tree renders a prefix tree over frontends. Keys are the bits of address, protocol
// and port, in this order, so ports divide like addresses where one address has many.
type tree struct {
	family Family
	tag    string
	match  matcher
	chains map[string]string // where nodes go
}

// entry is a frontend under its key.
type entry struct {
	key  string
	leaf leaf
}

// newKey orders by address, protocol and port.
func newKey(b dataplane.Binding) string {
	k := append(b.Addr.Addr().AsSlice(), byte(b.Protocol))
	return string(append(k, byte(b.Addr.Port()>>8), byte(b.Addr.Port())))
}

func newEntries(leaves []leaf) []entry {
	entries := make([]entry, len(leaves))
	for i, l := range leaves {
		entries[i] = entry{newKey(l.frontend), l}
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.key, b.key) })
	return entries
}

// root returns the rules of a root chain: the prefixes that cover all frontends, one
// if they are neighbours, so that a packet to somewhere else leaves after them.
func (t *tree) root(entries []entry) string {
	if len(entries) == 0 {
		return ""
	}
	if t.common(entries) < t.family.bits()/4 {
		return t.groups(entries)
	}
	return t.group(entries)
}

// node adds the chain of a subtree and returns its name.
func (t *tree) node(entries []entry) string {
	var body string
	if len(entries) > fanout {
		body = t.groups(entries)
	} else {
		var b strings.Builder
		for _, e := range entries {
			b.WriteString(t.match.leaf(e.leaf))
		}
		body = b.String()
	}
	name := chainPrefix + t.tag + "-" + hash("node", body)
	t.chains[name] = body
	return name
}

// groups returns a rule for each value of the four bits in which the keys first differ.
func (t *tree) groups(entries []entry) string {
	var b strings.Builder
	nibble := t.common(entries) / 4
	for len(entries) > 0 {
		n := 1
		for n < len(entries) && nibbleAt(entries[n].key, nibble) == nibbleAt(entries[0].key, nibble) {
			n++
		}
		b.WriteString(t.group(entries[:n]))
		entries = entries[n:]
	}
	return b.String()
}

// group returns the rule that leads to a subtree, or to the one frontend in it.
func (t *tree) group(entries []entry) string {
	if len(entries) == 1 {
		return t.match.leaf(entries[0].leaf)
	}
	return t.match.span(t.span(entries)) + "-g " + t.node(entries) + "\n"
}

// span is a subtree as a match: a prefix, and within one address the ports of a
// protocol.
type span struct {
	prefix    netip.Prefix
	protocol  dataplane.Protocol // 0: all, and all ports
	low, high uint16
}

func (t *tree) span(entries []entry) span {
	first, bits := entries[0].leaf.frontend, t.family.bits()
	common := t.common(entries)
	prefix, _ := first.Addr.Addr().Prefix(min(common, bits)) // cannot fail: so long is the address
	s := span{prefix: prefix}
	if common >= bits+8 {
		s.protocol = first.Protocol
		free := uint16(1)<<(bits+8+16-common) - 1 // 0xffff if all bits are
		s.low, s.high = first.Addr.Port()&^free, first.Addr.Port()|free
	}
	return s
}

// common is the number of bits that the keys of sorted entries begin with.
func (t *tree) common(entries []entry) int {
	a, b := entries[0].key, entries[len(entries)-1].key
	for i := range len(a) {
		if x := a[i] ^ b[i]; x != 0 {
			return 8*i + bits.LeadingZeros8(x)
		}
	}
	return 8 * len(a)
}

func nibbleAt(key string, i int) byte { return key[i/2] >> (4 - i%2*4) & 15 }

// matcher writes what a packet is compared by.
type matcher interface {
	span(span) string // with a space at the end
	leaf(leaf) string // a whole rule
}

// byDestination compares where the packet goes.
type byDestination struct{}

func (byDestination) span(s span) string {
	text := "-d " + s.prefix.String() + " "
	if s.protocol != 0 {
		text += "-p " + s.protocol.String() + " "
		if s.high-s.low != 0xffff {
			text += "-m " + s.protocol.String() + " --dport " + ports(s.low, s.high) + " "
		}
	}
	return text
}

func (byDestination) leaf(l leaf) string {
	a, protocol := l.frontend.Addr, l.frontend.Protocol.String()
	return "-d " + netip.PrefixFrom(a.Addr(), a.Addr().BitLen()).String() + " -p " + protocol +
		" -m " + protocol + " --dport " + strconv.Itoa(int(a.Port())) + " " + l.target + "\n"
}

// byOrigin compares where a packet that was led went before.
type byOrigin struct{}

const translated = "-m conntrack --ctstate DNAT --ctorigdst "

func (byOrigin) span(s span) string {
	switch text := translated + s.prefix.String() + " "; {
	case s.protocol == 0:
		return text
	case s.high-s.low == 0xffff:
		return "-p " + s.protocol.String() + " " + text
	default:
		return "-p " + s.protocol.String() + " " + strings.TrimSuffix(text, " ") + " --ctorigdstport " + ports(s.low, s.high) + " "
	}
}

func (byOrigin) leaf(l leaf) string {
	a := l.frontend.Addr
	return "-p " + l.frontend.Protocol.String() + " " + translated + netip.PrefixFrom(a.Addr(), a.Addr().BitLen()).String() +
		" --ctorigdstport " + strconv.Itoa(int(a.Port())) + " " + l.target + "\n"
}

func ports(low, high uint16) string {
	if low == high {
		return strconv.Itoa(int(low))
	}
	return strconv.Itoa(int(low)) + ":" + strconv.Itoa(int(high))
}
