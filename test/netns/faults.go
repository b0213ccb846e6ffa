package netns

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os/exec"
	"slices"
	"strings"
)

// lossUnits is the resolution of loss: parts of a packet's chance, so 0.01 %.
const lossUnits = 10_000

// path is one direction between two nodes.
type path struct{ from, to string } // ports of the switch

// faults is the whole state of what the switch does wrong. It is loaded as a whole, in one transaction.
type faults struct {
	cut  map[path]bool
	loss map[path]int // in lossUnits, never 0

	loaded bool // the kernel has the table
}

// Cut stops the packets of one node to another; those of the other direction pass. Neighbour discovery (ARP, ND) always passes, as
// the way back could not work without: packets are lost in silence, as behind a broken router.
func (topo *Topology) Cut(from, to *Node) {
	topo.t.Helper()
	topo.change(func(f *faults) { f.cut[path{from.port, to.port}] = true })
}

// Partition stops all packets between nodes of different groups, in addition to what is cut already. Within a group, and to and
// from nodes that are in none, packets pass.
func (topo *Topology) Partition(groups ...[]*Node) {
	topo.t.Helper()
	topo.change(func(f *faults) {
		for i, group := range groups {
			for j, other := range groups {
				if i == j {
					continue
				}
				for _, from := range group {
					for _, to := range other {
						f.cut[path{from.port, to.port}] = true
					}
				}
			}
		}
	})
}

// Isolate partitions one node from all others.
func (topo *Topology) Isolate(n *Node) {
	topo.t.Helper()
	others := slices.DeleteFunc(topo.Nodes(), func(o *Node) bool { return o == n })
	topo.Partition([]*Node{n}, others)
}

// Loss loses each packet between any two nodes with a probability in percent (0 to 100, in steps of 0.01), independently of the
// others. 0 ends it.
func (topo *Topology) Loss(percent float64) {
	topo.t.Helper()
	units := topo.lossUnits(percent)
	topo.change(func(f *faults) {
		for _, from := range topo.nodes {
			for _, to := range topo.nodes {
				f.setLoss(path{from.port, to.port}, units)
			}
		}
	})
}

// LossBetween is [Topology.Loss] for the packets of one node to another, in that direction only.
func (topo *Topology) LossBetween(from, to *Node, percent float64) {
	topo.t.Helper()
	units := topo.lossUnits(percent)
	topo.change(func(f *faults) { f.setLoss(path{from.port, to.port}, units) })
}

// Heal ends all cuts and all loss. Cables that are down stay down.
func (topo *Topology) Heal() {
	topo.t.Helper()
	topo.change(func(f *faults) { clear(f.cut); clear(f.loss) })
}

// Dropped returns how many packets cuts and loss have swallowed since New, so that a test can show that its fault was felt.
func (topo *Topology) Dropped() (cut, lost uint64) {
	topo.t.Helper()
	topo.mu.Lock()
	defer topo.mu.Unlock()
	if !topo.faults.loaded {
		return 0, 0
	}
	cut, lost, err := topo.readCounters()
	if err != nil {
		topo.t.Fatal(err)
	}
	return cut, lost
}

// change edits the faults and loads them.
func (topo *Topology) change(edit func(*faults)) {
	topo.t.Helper()
	topo.mu.Lock()
	defer topo.mu.Unlock()
	f := &topo.faults
	if f.cut == nil {
		f.cut, f.loss = make(map[path]bool), make(map[path]int)
	}
	edit(f)
	if _, err := topo.bridge.script("nft", "-f", f.render()); err != nil {
		topo.t.Fatal(err)
	}
	f.loaded = true
}

func (topo *Topology) lossUnits(percent float64) int {
	topo.t.Helper()
	if !(percent >= 0 && percent <= 100) {
		topo.t.Fatalf("netns: loss is %v %%, want 0 to 100", percent)
	}
	return int(math.Round(percent * lossUnits / 100))
}

func (f *faults) setLoss(p path, units int) {
	if units == 0 {
		delete(f.loss, p)
		return
	}
	f.loss[p] = units
}

// render writes the faults as a script of nft that is right whatever was loaded before. The counters outlive it.
func (f *faults) render() string {
	var b strings.Builder
	b.WriteString(`add table bridge faults
add counter bridge faults cut
add counter bridge faults lost
add chain bridge faults pass { type filter hook forward priority 0; policy accept; }
flush chain bridge faults pass
add rule bridge faults pass ether type arp accept
add rule bridge faults pass icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
`)
	for _, p := range sorted(f.cut) {
		fmt.Fprintf(&b, "add rule bridge faults pass iifname %q oifname %q counter name cut drop\n", p.from, p.to)
	}
	for _, p := range sorted(f.loss) {
		fmt.Fprintf(&b, "add rule bridge faults pass iifname %q oifname %q numgen random mod %d <= %d counter name lost drop\n",
			p.from, p.to, lossUnits, f.loss[p]-1) // not <: nft refuses a bound that can never be reached, as 100 % would be
	}
	return b.String()
}

func sorted[V any](paths map[path]V) []path {
	return slices.SortedFunc(maps.Keys(paths), func(a, b path) int {
		return strings.Compare(a.from+" "+a.to, b.from+" "+b.to)
	})
}

// readCounters asks the kernel what was dropped.
func (topo *Topology) readCounters() (cut, lost uint64, err error) {
	nft, err := tool("nft")
	if err != nil {
		return 0, 0, err
	}
	out, err := runScript(exec.Command(nft, "-j", "list", "counters", "table", "bridge", "faults"), "", topo.bridge.start)
	if err != nil {
		return 0, 0, err
	}
	var listing struct {
		Nftables []struct {
			Counter struct {
				Name    string `json:"name"`
				Packets uint64 `json:"packets"`
			} `json:"counter"`
		} `json:"nftables"`
	}
	if err := json.Unmarshal([]byte(out), &listing); err != nil {
		return 0, 0, fmt.Errorf("netns: counters of nft: %w", err)
	}
	for _, object := range listing.Nftables {
		switch object.Counter.Name {
		case "cut":
			cut = object.Counter.Packets
		case "lost":
			lost = object.Counter.Packets
		}
	}
	return cut, lost, nil
}
