package host

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
)

// Flow is what connection tracking knows of a connection, or of datagrams between the
// same two.
type Flow struct {
	ID       uint32 // tells it from one of the same addresses that comes after it
	Client   netip.AddrPort
	Frontend dataplane.Binding // what it was made to
	Endpoint netip.AddrPort    // where it goes
	Over     bool              // a connection that both sides closed, or one reset
}

// Led reports whether it was led to an endpoint. What is refused goes to port 0.
func (f Flow) Led() bool { return f.Endpoint != f.Frontend.Addr && f.Endpoint.Port() != 0 }

// Allowed are addresses that datagrams to a frontend may still go to.
type Allowed map[dataplane.Binding]map[netip.AddrPort]bool

// FlushUDP forgets the flows to these frontends that go elsewhere. A socket that goes
// on sending is led anew then, instead of to an endpoint that is gone, or to none.
func FlushUDP(allowed Allowed) (int, error) {
	total := 0
	for i := range familyCount {
		if !involves(allowed, i) {
			continue
		}
		var goes [][]byte
		err := dump(i, func(flow Flow, message []byte) {
			if ends, ours := allowed[flow.Frontend]; ours && flow.Frontend.Protocol == dataplane.UDP && !ends[flow.Endpoint] {
				goes = append(goes, slices.Clone(message))
			}
		})
		for _, message := range goes {
			r := request(i, nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK)
			r.AddRawData(message[nl.SizeofNfgenmsg:]) // with its id: no other is meant
			_, e := r.Execute(unix.NETLINK_NETFILTER, 0)
			switch {
			case e == nil:
				total++
			case !errors.Is(e, syscall.ENOENT): // it went by itself
				err = errors.Join(err, fmt.Errorf("connection tracking of %s: %w", familyName(i), e))
			}
		}
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

func involves(allowed Allowed, family int) bool {
	for b := range allowed {
		if familyOf(b.Addr.Addr()) == family {
			return true
		}
	}
	return false
}

// Flows calls yield with all of TCP and UDP.
func Flows(yield func(Flow)) error {
	for i := range familyCount {
		if err := dump(i, func(flow Flow, _ []byte) { yield(flow) }); err != nil {
			return err
		}
	}
	return nil
}

// CanTrack says whether connection tracking answers.
func CanTrack() error { return Flows(func(Flow) {}) }
