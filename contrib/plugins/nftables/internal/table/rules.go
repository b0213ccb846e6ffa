package table

import (
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/plan"
)

const (
	protoTCP = unix.IPPROTO_TCP
	protoUDP = unix.IPPROTO_UDP
)

// family is what differs between the tables of the two IP versions. Registers are
// of 4 bytes and counted from 0.
type family struct {
	v6           bool
	nf           nftables.TableFamily
	words        uint32 // an address takes
	srcAt, dstAt uint32 // in the header
	addr         nftables.SetDatatype
}

func families() [2]family {
	return [2]family{
		{nf: nftables.TableFamilyIPv4, words: 1, srcAt: 12, dstAt: 16, addr: nftables.TypeIPAddr},
		{v6: true, nf: nftables.TableFamilyIPv6, words: 4, srcAt: 8, dstAt: 24, addr: nftables.TypeIP6Addr},
	}
}

// r is the number of a register.
func r(n uint32) uint32 { return unix.NFT_REG32_00 + n }

func (f family) load(at, offset uint32) expr.Any {
	return &expr.Payload{DestRegister: r(at), Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4 * f.words}
}

// place loads daddr . proto . dport.
func (f family) place(at uint32) []expr.Any {
	return []expr.Any{
		f.load(at, f.dstAt),
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: r(at + f.words)},
		&expr.Payload{DestRegister: r(at + f.words + 1), Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
	}
}

func (f family) lookup(kind setKind, side plan.Side, from, to uint32) expr.Any {
	return &expr.Lookup{SetName: setID{f.v6, kind, side}.name(), SourceRegister: r(from), DestRegister: r(to), IsDestRegSet: true}
}

// branch goes to the chain of the class of what is looked up at from.
func (f family) branch(side plan.Side, from, to uint32) []expr.Any {
	return []expr.Any{
		f.lookup(frontends, side, from, to),
		&expr.Lookup{SetName: setID{f.v6, classes, side}.name(), SourceRegister: r(to), DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true},
	}
}

// dispatch is the rule of a base chain.
func (f family) dispatch(side plan.Side) []expr.Any {
	return append(f.place(0), f.branch(side, 0, f.words+2)...)
}

// toEndpoint leads to the endpoint whose key begins at register f.words.
func (f family) toEndpoint(side plan.Side) []expr.Any {
	return []expr.Any{
		f.lookup(endpoints, side, f.words, 0),
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(f.nf), RegAddrMin: r(0), RegProtoMin: r(f.words)},
	}
}

// pick are the rules of the chain of a class. Registers: saddr, daddr, proto, dport
// and, after them, slot or endpoint id.
func (f family) pick(side plan.Side, c class) [][]expr.Any {
	id := 2*f.words + 2
	client := func() []expr.Any { return append([]expr.Any{f.load(0, f.srcAt)}, f.place(f.words)...) }
	keep := func(op uint32) expr.Any {
		d := &expr.Dynset{SrcRegKey: r(0), SrcRegData: r(id), SetName: setID{f.v6, affinity, side}.name(), Operation: op}
		if op == unix.NFT_DYNSET_OP_UPDATE {
			d.Timeout = seconds(c.sticky)
		}
		return d
	}
	random := &expr.Numgen{Register: r(id), Modulus: c.slots, Type: unix.NFT_NG_RANDOM}
	first := &expr.Immediate{Register: r(id), Data: make([]byte, 4)}
	slot := f.lookup(slots, side, f.words, id)
	var rules [][]expr.Any
	add := func(parts ...[]expr.Any) {
		var all []expr.Any
		for _, p := range parts {
			all = append(all, p...)
		}
		rules = append(rules, append(all, f.toEndpoint(side)...))
	}
	if c.sticky > 0 {
		// An update leaves what an element says, so one that names an endpoint
		// that is gone is deleted first.
		add(client(), []expr.Any{f.lookup(affinity, side, 0, id), keep(unix.NFT_DYNSET_OP_UPDATE)})
		nobody := &expr.Immediate{Register: r(id), Data: make([]byte, 8)} // the kernel wants data of every operation on a map
		rules = append(rules, append(client(), nobody, keep(nftDynsetDelete)))
		add(client(), []expr.Any{random, slot, keep(unix.NFT_DYNSET_OP_UPDATE)})
	}
	add(f.place(f.words), []expr.Any{random, slot})
	// A packet that saw the class before a change and the slots after it.
	add(f.place(f.words), []expr.Any{first, slot})
	return append(rules, f.refuse())
}

// nftDynsetDelete is NFT_DYNSET_OP_DELETE, which package unix lacks.
const nftDynsetDelete = 2

// refuse has a connection refused at once, and a datagram answered as by a closed
// port: nothing ever listens on port 0. Packets of this host are redirected to its
// loopback address, others to that of the device they came by.
func (f family) refuse() []expr.Any {
	return []expr.Any{&expr.Immediate{Register: r(0), Data: make([]byte, 2)}, &expr.Redir{RegisterProtoMin: r(0)}}
}

// masquerade gives packets that came by a frontend the address of the device they
// leave by, unless they have it: answers have to come back here.
func (f family) masquerade(side plan.Side) []expr.Any {
	const dnat = 1 << 5 // IPS_DST_NAT
	status := make([]byte, 4)
	mask := append(status[:0:0], native(dnat)...)
	return []expr.Any{
		&expr.Ct{Key: expr.CtKeySTATUS, Register: r(0)},
		&expr.Bitwise{SourceRegister: r(0), DestRegister: r(0), Len: 4, Mask: mask, Xor: status},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: r(0), Data: status},
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: r(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: r(0), Data: append([]byte("lo"), make([]byte, 14)...)},
		&expr.Ct{Key: expr.CtKeyDST, Direction: 0, Register: r(0)},
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: r(f.words)},
		&expr.Ct{Key: expr.CtKeyPROTODST, Direction: 0, Register: r(f.words + 1)},
		f.lookup(frontends, side, 0, f.words+2),
		&expr.Fib{Register: r(0), ResultADDRTYPE: true, FlagSADDR: true, FlagOIF: true},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: r(0), Data: native(unix.RTN_LOCAL)},
		&expr.Masq{},
	}
}
