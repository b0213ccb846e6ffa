package host

import (
	"encoding/binary"
	"fmt"
	"iter"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
)

// dump calls yield with each flow of a family, and the kernel's message, which is valid
// during the call only.
func dump(family int, yield func(Flow, []byte)) error {
	err := request(family, nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP).ExecuteIter(unix.NETLINK_NETFILTER, 0, func(message []byte) bool {
		if flow, ok := decode(message); ok {
			yield(flow, message)
		}
		return true
	})
	if err != nil && !missing(err) {
		return fmt.Errorf("connection tracking of %s: %w", familyName(family), err)
	}
	return nil
}

func request(family, operation, flags int) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(int(netlink.ConntrackTable)<<8|operation, flags)
	r.AddData(&nl.Nfgenmsg{NfgenFamily: uint8(families()[family]), Version: nl.NFNETLINK_V0})
	return r
}

// States of TCP from linux/netfilter/nf_conntrack_tcp.h in which nothing comes any more
// but what is late.
const (
	stateTimeWait = 7
	stateClose    = 8
)

// decode reads a message; false if it is of another protocol.
func decode(message []byte) (f Flow, ok bool) {
	if len(message) < nl.SizeofNfgenmsg {
		return f, false
	}
	for kind, value := range attributes(message[nl.SizeofNfgenmsg:]) {
		switch kind {
		case nl.CTA_TUPLE_ORIG:
			f.Client, f.Frontend.Addr, f.Frontend.Protocol = tuple(value)
		case nl.CTA_TUPLE_REPLY:
			f.Endpoint, _, _ = tuple(value)
		case nl.CTA_ID:
			f.ID = number[uint32](value)
		case nl.CTA_PROTOINFO:
			f.Over = over(value)
		}
	}
	return f, f.Frontend.Protocol != 0 && f.Frontend.Addr.IsValid() && f.Endpoint.IsValid()
}

func over(info []byte) bool {
	for kind, tcp := range attributes(info) {
		for what, state := range attributes(tcp) {
			if kind == nl.CTA_PROTOINFO_TCP && what == nl.CTA_PROTOINFO_TCP_STATE && len(state) == 1 {
				return state[0] == stateTimeWait || state[0] == stateClose
			}
		}
	}
	return false
}

// tuple reads one direction.
func tuple(value []byte) (from, to netip.AddrPort, p dataplane.Protocol) {
	var source, target netip.Addr
	var sourcePort, targetPort uint16
	for kind, value := range attributes(value) {
		for what, value := range attributes(value) {
			switch [2]uint16{kind, what} {
			case [2]uint16{nl.CTA_TUPLE_IP, nl.CTA_IP_V4_SRC}, [2]uint16{nl.CTA_TUPLE_IP, nl.CTA_IP_V6_SRC}:
				source, _ = netip.AddrFromSlice(value)
			case [2]uint16{nl.CTA_TUPLE_IP, nl.CTA_IP_V4_DST}, [2]uint16{nl.CTA_TUPLE_IP, nl.CTA_IP_V6_DST}:
				target, _ = netip.AddrFromSlice(value)
			case [2]uint16{nl.CTA_TUPLE_PROTO, nl.CTA_PROTO_SRC_PORT}:
				sourcePort = number[uint16](value)
			case [2]uint16{nl.CTA_TUPLE_PROTO, nl.CTA_PROTO_DST_PORT}:
				targetPort = number[uint16](value)
			case [2]uint16{nl.CTA_TUPLE_PROTO, nl.CTA_PROTO_NUM}:
				switch number[uint8](value) {
				case syscall.IPPROTO_TCP:
					p = dataplane.TCP
				case syscall.IPPROTO_UDP:
					p = dataplane.UDP
				}
			}
		}
	}
	return netip.AddrPortFrom(source, sourcePort), netip.AddrPortFrom(target, targetPort), p
}

// attributes yields those of a netlink message, by kind.
func attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= syscall.SizeofNlAttr {
			size := int(binary.NativeEndian.Uint16(b))
			if size < syscall.SizeofNlAttr || size > len(b) {
				return
			}
			kind := binary.NativeEndian.Uint16(b[2:]) &^ (syscall.NLA_F_NESTED | syscall.NLA_F_NET_BYTEORDER)
			if !yield(kind, b[syscall.SizeofNlAttr:size]) {
				return
			}
			const align = syscall.NLA_ALIGNTO - 1
			b = b[min(len(b), (size+align)&^align):]
		}
	}
}

// number reads one in the order of the network; 0 if it has another size.
func number[T uint8 | uint16 | uint32](b []byte) (n T) {
	if len(b) != binary.Size(n) {
		return 0
	}
	for _, one := range b {
		n = T(uint64(n)<<8 | uint64(one))
	}
	return n
}
