package ebpf

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"sync"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/datapath"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/host"
)

// defaultFlowsPerSecond is what MaxPerSecond 0 means.
const defaultFlowsPerSecond = 100

// flowReader is the goroutine that reads what programs report.
type flowReader struct {
	options dataplane.FlowOptions
	sample  *datapath.Sample
	ring    *ringbuf.Reader
	cgroups string // where their hierarchy is mounted
	done    sync.WaitGroup
}

// restartFlows lets as many flows be reported and read as are wanted. p.mu is held.
func (p *Provider) restartFlows() {
	want := p.wanted()
	if p.flows != nil && want != nil && p.flows.options == *want {
		return
	}
	p.stopFlows()
	if want == nil || p.data == nil {
		return
	}
	ring, err := ringbuf.NewReader(p.data.Shared("flows"))
	if err != nil {
		p.log.Warn("flows cannot be read", "error", err)
		return
	}
	sample, err := datapath.NewSample(p.data.Shared("settings"))
	if err != nil {
		p.log.Warn("flows cannot be asked for", "error", err)
		_ = ring.Close()
		return
	}
	r := &flowReader{options: *want, sample: sample, ring: ring, cgroups: p.place.root}
	r.done.Go(func() { r.read(p) })
	sample.Set(uint32(want.SampleOneIn))
	p.flows = r
}

// stopFlows ends the reader. p.mu is held, which it may be waiting for.
func (p *Provider) stopFlows() {
	r := p.flows
	if r == nil {
		return
	}
	p.flows = nil
	r.sample.Set(0)
	_ = r.ring.Close()
	p.mu.Unlock()
	r.done.Wait()
	p.mu.Lock()
	r.sample.Close()
}

// read passes on flows until the ring is closed, so many in each second.
func (r *flowReader) read(p *Provider) {
	second, n := time.Time{}, 0
	cgroups := host.NewCgroupNames(r.cgroups)
	for {
		record, err := r.ring.Read()
		if err != nil {
			return // closed
		}
		if at := now(); at.Sub(second) >= time.Second {
			second, n = at, 0
		}
		if n++; n > r.options.MaxPerSecond {
			continue
		}
		f, service, ok := parseFlow(record.RawSample, now())
		if !ok {
			continue
		}
		// Not under the lock: it may take a look at files.
		f.Process.Cgroup = cgroups.Name(f.Process.CgroupID, f.Process.PID)
		p.mu.Lock()
		if p.flows == r && p.data != nil {
			p.tell(f, service)
		}
		p.mu.Unlock()
	}
}

// tell passes a flow of a service on to those who want flows.
func (p *Provider) tell(f dataplane.Flow, service uint32) {
	f.Service, _ = p.data.Table().Key(service)
	if isOwn(f.Service) {
		return
	}
	for w := range p.watchers {
		if w.flows != nil {
			w.emit(dataplane.Event{Flow: &f})
		}
	}
}

// flow is the record of bpf/headers/flow.h.
type flow struct {
	AtNs, Cgroup, Netns, Endpoint uint64
	Frontend, Destination         [16]byte
	FrontendPort, DestinationPort [2]byte
	Service, PID, UID             uint32
	Six, Transport, Reason        uint8
	_                             [5]byte
	Process                       [16]byte
}

// parseFlow reads a record that was read at a time.
func parseFlow(raw []byte, at time.Time) (dataplane.Flow, uint32, bool) {
	var f flow
	if binary.Read(bytes.NewReader(raw), binary.NativeEndian, &f) != nil {
		return dataplane.Flow{}, 0, false
	}
	proto := dataplane.TCP
	if f.Transport == unix.IPPROTO_UDP {
		proto = dataplane.UDP
	}
	addr := func(ip [16]byte, port [2]byte) dataplane.Binding {
		a := netip.AddrFrom16(ip)
		if f.Six == 0 {
			a = netip.AddrFrom4([4]byte(ip[12:]))
		}
		return dataplane.Binding{Addr: netip.AddrPortFrom(a, binary.BigEndian.Uint16(port[:])), Protocol: proto}
	}
	out := dataplane.Flow{At: atTime(f.AtNs, at), Endpoint: f.Endpoint, Frontend: addr(f.Frontend, f.FrontendPort), Verdict: verdictOf(f.Reason)}
	if out.Verdict != forwarded {
		out.Reason = datapath.Reason(f.Reason).String()
	}
	process, _, _ := bytes.Cut(f.Process[:], []byte{0})
	out.Process = dataplane.Process{PID: f.PID, Name: string(process), CgroupID: f.Cgroup}
	if f.Endpoint != 0 {
		out.Destination = addr(f.Destination, f.DestinationPort)
	}
	return out, f.Service, true
}

// atTime turns a time of the monotonic clock into one of the wall clock.
func atTime(ns uint64, wall time.Time) time.Time {
	var mono unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono) != nil {
		return wall
	}
	return wall.Add(time.Duration(ns) - time.Duration(mono.Nano()))
}

func verdictOf(reason uint8) string {
	switch datapath.Reason(reason) {
	case datapath.Forwarded, datapath.Untracked:
		return forwarded
	case datapath.Denied:
		return "denied"
	case datapath.EmptyPassed:
		return "passed"
	}
	return "refused"
}
