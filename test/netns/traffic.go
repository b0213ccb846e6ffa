package netns

import (
	"fmt"
	"os"
	"strings"
)

// Traffic is what a device has carried since it was made, as the node sees it.
type Traffic struct {
	RxBytes, RxPackets uint64
	TxBytes, TxPackets uint64
}

// Sub returns the traffic since an earlier reading.
func (a Traffic) Sub(earlier Traffic) Traffic {
	return Traffic{
		RxBytes:   a.RxBytes - earlier.RxBytes,
		RxPackets: a.RxPackets - earlier.RxPackets,
		TxBytes:   a.TxBytes - earlier.TxBytes,
		TxPackets: a.TxPackets - earlier.TxPackets,
	}
}

// Traffic returns the counters of a device of the node: "eth0" or "lo". Bytes include the 14 of the Ethernet header. A large TCP
// write crosses a veth as one packet of up to 64 KiB, so packets compare only where datagrams and small writes are counted.
func (n *Node) Traffic(device string) Traffic {
	n.topo.t.Helper()
	var traffic Traffic
	n.must(n.Do(func() (err error) {
		// Not /proc/net: that is the namespace of the first thread of the process.
		table, err := os.ReadFile("/proc/thread-self/net/dev")
		if err == nil {
			traffic, err = parseTraffic(string(table), device)
		}
		return err
	}))
	return traffic
}

// parseTraffic reads one device of proc(5) net/dev: after the name eight numbers of receiving and eight of sending, each
// beginning with bytes and packets.
func parseTraffic(table, device string) (Traffic, error) {
	for line := range strings.Lines(table) {
		name, numbers, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok || name != device {
			continue
		}
		var a Traffic
		var skip [6]uint64
		if _, err := fmt.Sscan(numbers, &a.RxBytes, &a.RxPackets,
			&skip[0], &skip[1], &skip[2], &skip[3], &skip[4], &skip[5], &a.TxBytes, &a.TxPackets); err != nil {
			return Traffic{}, fmt.Errorf("netns: counters of %s: %q: %w", device, numbers, err)
		}
		return a, nil
	}
	return Traffic{}, fmt.Errorf("netns: no device %q", device)
}
