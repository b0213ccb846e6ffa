package table

import (
	"fmt"
	"net/netip"
	"slices"

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

// home is the loopback address.
func (f family) home() netip.Addr {
	if f.v6 {
		return netip.IPv6Loopback()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
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

// dispatch is the rule of a base chain.
func (f family) dispatch(side plan.Side) []expr.Any {
	return append(f.place(0), &expr.Lookup{SetName: setID{f.v6, frontends, side}.name(), SourceRegister: r(0), DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true})
}

// pick is a chain of its own for each number of slots, on each side.
type pick struct {
	slots int
	side  plan.Side
}

func (p pick) chain() string { return sided(fmt.Sprintf("pick-%d", p.slots), p.side) }

// pick are the rules of such a chain.
func (f family) pick(p pick) [][]expr.Any {
	slot := f.words + 2
	lead := func(among int) []expr.Any {
		return append(
			f.place(0), &expr.Numgen{Register: r(slot), Modulus: uint32(among), Type: unix.NFT_NG_RANDOM},
			&expr.Lookup{SetName: setID{f.v6, slots, p.side}.name(), SourceRegister: r(0), DestRegister: r(0), IsDestRegSet: true},
			f.dnat(),
		)
	}
	return [][]expr.Any{
		f.mark(),
		lead(p.slots),
		// A packet that saw the frontend before a change and the slots after it.
		lead(1),
		f.refuse(),
	}
}

// dnat leads to the address and port in the first registers.
func (f family) dnat() expr.Any {
	return &expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(f.nf), RegAddrMin: r(0), RegProtoMin: r(f.words)}
}

// refuse has a connection refused at once, and a datagram answered as by a closed
// port: nothing ever listens on port 0. Packets of this host are redirected to its
// loopback address, others to that of the device they came by.
func (f family) refuse() []expr.Any {
	return []expr.Any{&expr.Immediate{Register: r(0), Data: make([]byte, 2)}, &expr.Redir{RegisterProtoMin: r(0)}}
}

// markBit is set in the mark of a packet from the choice of its endpoint to
// postrouting, where it is taken away again. Only the first packet of a connection
// gets there.
const markBit = 0x2000

// setMark is the mark with the bit as it is said.
func setMark(bit uint32) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: r(0)},
		&expr.Bitwise{SourceRegister: r(0), DestRegister: r(0), Len: 4, Mask: native(^uint32(markBit)), Xor: native(bit)},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: r(0)},
	}
}

func (f family) mark() []expr.Any { return setMark(markBit) }

// masquerade gives packets that came by a frontend the address of the device they
// leave by, unless they have it: answers have to come back here.
func (f family) masquerade() [][]expr.Any {
	marked := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: r(0)},
		&expr.Bitwise{SourceRegister: r(0), DestRegister: r(0), Len: 4, Mask: native(markBit), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: r(0), Data: make([]byte, 4)},
	}
	away := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: r(0)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: r(0), Data: append([]byte("lo"), make([]byte, 14)...)},
		&expr.Fib{Register: r(0), ResultADDRTYPE: true, FlagSADDR: true, FlagOIF: true},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: r(0), Data: native(unix.RTN_LOCAL)},
	}
	return [][]expr.Any{
		slices.Concat(marked, away, setMark(0), []expr.Any{&expr.Masq{}}),
		slices.Concat(marked, setMark(0)),
	}
}
