package host

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
)

// Flow is one entry of conntrack.
type Flow struct {
	ID       uint32            // tells it from one of the same addresses that comes after it
	Client   netip.AddrPort    // who sent it
	Frontend dataplane.Binding // where it was sent
	Endpoint netip.AddrPort    // where it goes; the frontend itself if nobody led it elsewhere
	// Over says of TCP that both sides closed it, or one reset it. Conntrack goes on to
	// know it for up to two minutes.
	Over bool
}

// Translated reports whether the flow was led elsewhere. What is refused was: to
// port 0.
func (f Flow) Translated() bool { return f.Frontend.Addr != f.Endpoint }

// DeleteFlows deletes the UDP entries of a family that match, at the cost of one
// dump. Entries of TCP are never touched.
func DeleteFlows(f Family, match func(Flow) bool) (deleted int, err error) {
	var goes [][]byte
	err = dump(f, func(flow Flow, message []byte) {
		if flow.Frontend.Protocol == dataplane.UDP && match(flow) {
			goes = append(goes, slices.Clone(message))
		}
	})
	for _, message := range goes {
		r := request(f, nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK)
		r.AddRawData(message[nl.SizeofNfgenmsg:]) // with its id: no other entry is meant
		_, e := r.Execute(unix.NETLINK_NETFILTER, 0)
		switch {
		case e == nil:
			deleted++
		case !errors.Is(e, syscall.ENOENT): // it went by itself
			err = errors.Join(err, fmt.Errorf("host: delete an %v UDP entry of conntrack: %w", f, e))
		}
	}
	return deleted, err
}

// Flows calls yield with each entry of a family, of a protocol that we lead.
func Flows(f Family, yield func(Flow)) error {
	return dump(f, func(flow Flow, _ []byte) { yield(flow) })
}

// dump does so with the kernel's message as well, which is valid during the call only.
func dump(f Family, yield func(Flow, []byte)) error {
	err := request(f, nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP).ExecuteIter(unix.NETLINK_NETFILTER, 0, func(message []byte) bool {
		if flow, ok := decode(message); ok {
			yield(flow, message)
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("host: the %v entries of conntrack: %w", f, err)
	}
	return nil
}

func request(f Family, operation, flags int) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(int(netlink.ConntrackTable)<<8|operation, flags)
	r.AddData(&nl.Nfgenmsg{NfgenFamily: uint8(family(f)), Version: nl.NFNETLINK_V0})
	return r
}

// States of TCP from linux/netfilter/nf_conntrack_tcp.h; no others come after these.
const (
	stateTimeWait = 7
	stateClose    = 8
)

// decode reads an entry; false if it is of a protocol that we do not lead.
func decode(message []byte) (flow Flow, ok bool) {
	if len(message) < nl.SizeofNfgenmsg {
		return flow, false
	}
	var answer netip.AddrPort
	for kind, value := range attributes(message[nl.SizeofNfgenmsg:]) {
		switch kind {
		case nl.CTA_TUPLE_ORIG:
			flow.Client, flow.Frontend.Addr, flow.Frontend.Protocol = tuple(value)
		case nl.CTA_TUPLE_REPLY:
			flow.Endpoint, answer, _ = tuple(value)
		case nl.CTA_ID:
			flow.ID = bigEndian[uint32](value)
		case nl.CTA_PROTOINFO:
			for kind, tcp := range attributes(value) {
				for what, state := range attributes(tcp) {
					if kind == nl.CTA_PROTOINFO_TCP && what == nl.CTA_PROTOINFO_TCP_STATE && len(state) == 1 {
						flow.Over = state[0] == stateTimeWait || state[0] == stateClose
					}
				}
			}
		}
	}
	return flow, flow.Frontend.Protocol != 0 && flow.Frontend.Addr.IsValid() && answer.IsValid()
}

// protocol reads the number that IP has for it; 0 is one that we do not lead.
func protocol(number byte) dataplane.Protocol {
	switch number {
	case syscall.IPPROTO_TCP:
		return dataplane.TCP
	case syscall.IPPROTO_UDP:
		return dataplane.UDP
	}
	return 0
}

// tuple reads the addresses of one direction. The protocol is 0 if we do not lead it.
func tuple(value []byte) (from, to netip.AddrPort, p dataplane.Protocol) {
	var addrs [2]netip.Addr
	var ports [2]uint16
	for kind, value := range attributes(value) {
		for what, value := range attributes(value) {
			switch {
			case kind == nl.CTA_TUPLE_IP && (what == nl.CTA_IP_V4_SRC || what == nl.CTA_IP_V6_SRC):
				addrs[0], _ = netip.AddrFromSlice(value)
			case kind == nl.CTA_TUPLE_IP && (what == nl.CTA_IP_V4_DST || what == nl.CTA_IP_V6_DST):
				addrs[1], _ = netip.AddrFromSlice(value)
			case kind != nl.CTA_TUPLE_PROTO:
			case what == nl.CTA_PROTO_SRC_PORT:
				ports[0] = bigEndian[uint16](value)
			case what == nl.CTA_PROTO_DST_PORT:
				ports[1] = bigEndian[uint16](value)
			case what == nl.CTA_PROTO_NUM && len(value) == 1:
				p = protocol(value[0])
			}
		}
	}
	return netip.AddrPortFrom(addrs[0], ports[0]), netip.AddrPortFrom(addrs[1], ports[1]), p
}
