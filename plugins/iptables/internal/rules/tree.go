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

// tree is a prefix tree over the frontends of one hook. Keys are the bits of address,
// protocol and port, in this order, so ports divide like addresses where one address
// has many. The zero tree is empty.
type tree struct {
	leaves []*leaf // in the order of their keys
	root   node    // has no name: its rules are part of a root chain
}

// node is a chain of a tree. It is immutable, and the next tree has it too if the
// frontends below are the same.
type node struct {
	name, rules string
	span        span
	leaves      []*leaf
	below       []*node
}

// newKey orders by address, protocol and port.
func newKey(b dataplane.Binding) string {
	k := append(b.Addr.Addr().AsSlice(), byte(b.Protocol))
	return string(append(k, byte(b.Addr.Port()>>8), byte(b.Addr.Port())))
}

func byKey(a, b *leaf) int { return cmp.Compare(a.key, b.key) }

// merge returns the leaves in their order without those of units that are gone and
// with new ones.
func merge(leaves []*leaf, gone map[*unit]bool, added []*leaf) []*leaf {
	slices.SortFunc(added, byKey)
	merged := make([]*leaf, 0, len(leaves)+len(added))
	for _, l := range leaves {
		if gone[l.unit] {
			continue
		}
		for len(added) > 0 && added[0].key < l.key {
			merged, added = append(merged, added[0]), added[1:]
		}
		merged = append(merged, l)
	}
	return append(merged, added...)
}

// grower makes a tree out of leaves, with what an older one has of them.
type grower struct {
	family Family
	tag    string
	match  matcher
	fresh  []*node
	kept   map[*node]bool
}

// grow makes the tree. Its root has a rule for each prefix that covers frontends, one
// if they are neighbours, so that a packet to somewhere else leaves after them.
func (g *grower) grow(leaves []*leaf, old *tree) tree {
	t := tree{leaves: leaves}
	switch {
	case len(leaves) == 0:
	case g.common(leaves) < g.family.bits()/4:
		g.groups(&t.root, leaves, &old.root)
	default:
		g.group(&t.root, leaves, &old.root)
	}
	return t
}

// node returns the chain of a subtree. near is the node of the older tree in whose
// place this one may be, or above it.
func (g *grower) node(s span, leaves []*leaf, near *node) *node {
	for _, candidate := range append([]*node{near}, near.below...) {
		if candidate.span != s {
			continue
		}
		if slices.EqualFunc(candidate.leaves, leaves, sameLeaf) {
			g.kept[candidate] = true
			return candidate
		}
		near = candidate
		break
	}
	n := &node{span: s, leaves: leaves}
	if len(leaves) > fanout {
		g.groups(n, leaves, near)
	} else {
		for _, l := range leaves {
			n.rules += l.rule
		}
	}
	n.name = chainPrefix + g.tag + "-" + hash("node", n.rules)
	g.fresh = append(g.fresh, n)
	return n
}

func sameLeaf(a, b *leaf) bool { return a == b || a.rule == b.rule }

// groups adds a rule for each value of the four bits in which the keys first differ.
func (g *grower) groups(n *node, leaves []*leaf, near *node) {
	place := g.common(leaves) / 4
	for len(leaves) > 0 {
		size := 1
		for size < len(leaves) && nibble(leaves[size].key, place) == nibble(leaves[0].key, place) {
			size++
		}
		g.group(n, leaves[:size], near)
		leaves = leaves[size:]
	}
}

// group adds the rule that leads to a subtree, or to the one frontend in it.
func (g *grower) group(n *node, leaves []*leaf, near *node) {
	if len(leaves) == 1 {
		n.rules += leaves[0].rule
		return
	}
	s := g.span(leaves)
	below := g.node(s, leaves, near)
	n.below = append(n.below, below)
	n.rules += g.match.span(s) + "-g " + below.name + "\n"
}

// span is a subtree as a match: a prefix, and within one address the ports of a
// protocol.
type span struct {
	prefix    netip.Prefix
	protocol  dataplane.Protocol // 0: all, and all ports
	low, high uint16
}

func (g *grower) span(leaves []*leaf) span {
	first, bits := leaves[0].frontend, g.family.bits()
	common := g.common(leaves)
	prefix, _ := first.Addr.Addr().Prefix(min(common, bits)) // cannot fail: so long is the address
	s := span{prefix: prefix}
	if common >= bits+8 {
		s.protocol = first.Protocol
		free := uint16(1)<<(bits+8+16-common) - 1 // 0xffff if all bits are
		s.low, s.high = first.Addr.Port()&^free, first.Addr.Port()|free
	}
	return s
}

// common is the number of bits that the keys of sorted leaves begin with.
func (g *grower) common(leaves []*leaf) int {
	a, b := leaves[0].key, leaves[len(leaves)-1].key
	for i := range len(a) {
		if x := a[i] ^ b[i]; x != 0 {
			return 8*i + bits.LeadingZeros8(x)
		}
	}
	return 8 * len(a)
}

func nibble(key string, i int) byte { return key[i/2] >> (4 - i%2*4) & 15 }

// matcher writes what a packet is compared by, each with a space at the end.
type matcher interface {
	span(span) string
	frontend(dataplane.Binding) string
}

func (h hook) matcher() matcher {
	if h == post {
		return byOrigin{}
	}
	return byDestination{}
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

func (byDestination) frontend(b dataplane.Binding) string {
	protocol := b.Protocol.String()
	return "-d " + single(b.Addr.Addr()).String() + " -p " + protocol + " -m " + protocol + " --dport " + strconv.Itoa(int(b.Addr.Port())) + " "
}

// byOrigin compares where a packet that was led went before.
type byOrigin struct{}

// origin matches connections that were led from a prefix. Of one address
// iptables-save leaves the length off, here but not after -d.
func origin(p netip.Prefix) string {
	return "-m conntrack --ctstate DNAT --ctorigdst " + strings.TrimSuffix(p.String(), "/"+strconv.Itoa(p.Addr().BitLen())) + " "
}

func (byOrigin) span(s span) string {
	text := origin(s.prefix)
	if s.protocol != 0 {
		text = "-p " + s.protocol.String() + " " + text
		if s.high-s.low != 0xffff {
			text += "--ctorigdstport " + ports(s.low, s.high) + " "
		}
	}
	return text
}

func (byOrigin) frontend(b dataplane.Binding) string {
	return "-p " + b.Protocol.String() + " " + origin(single(b.Addr.Addr())) + "--ctorigdstport " + strconv.Itoa(int(b.Addr.Port())) + " "
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func ports(low, high uint16) string {
	if low == high {
		return strconv.Itoa(int(low))
	}
	return strconv.Itoa(int(low)) + ":" + strconv.Itoa(int(high))
}
