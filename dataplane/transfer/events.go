package transfer

import (
	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// EncodeEvent returns the wire form of an event, without instance and number;
// nil if no field of it is set.
func EncodeEvent(e dataplane.Event) *pb.WatchResponse {
	out := &pb.WatchResponse{}
	switch {
	case e.Health != nil:
		out.Event = &pb.WatchResponse_Health{Health: EncodeHealth(*e.Health)}
	case e.Status != nil:
		out.Event = &pb.WatchResponse_Status{Status: EncodeStatus(*e.Status)}
	case e.Drift != nil:
		out.Event = &pb.WatchResponse_Drift{Drift: &pb.Drift{What: text(e.Drift.What), Repaired: e.Drift.Repaired}}
	case e.ResyncWanted != "":
		out.Event = &pb.WatchResponse_Resync{Resync: &pb.ResyncWanted{Reason: text(e.ResyncWanted)}}
	case e.Flow != nil:
		out.Event = &pb.WatchResponse_Flow{Flow: encodeFlow(e.Flow)}
	default:
		return nil
	}
	return out
}

// DecodeEvent reads what EncodeEvent wrote. An event of a later version is the
// zero Event.
func DecodeEvent(m *pb.WatchResponse) dataplane.Event {
	var out dataplane.Event
	switch e := m.GetEvent().(type) {
	case *pb.WatchResponse_Health:
		h := DecodeHealth(e.Health)
		out.Health = &h
	case *pb.WatchResponse_Status:
		s := DecodeStatus(e.Status)
		out.Status = &s
	case *pb.WatchResponse_Drift:
		out.Drift = &dataplane.Drift{What: brief(e.Drift.GetWhat()), Repaired: e.Drift.GetRepaired()}
	case *pb.WatchResponse_Resync:
		out.ResyncWanted = brief(e.Resync.GetReason())
	case *pb.WatchResponse_Flow:
		out.Flow = decodeFlow(e.Flow)
	}
	return out
}

func encodeFlow(f *dataplane.Flow) *pb.Flow {
	return &pb.Flow{
		At: encodeTime(f.At), Service: EncodeKey(f.Service), Endpoint: f.Endpoint, Protocol: pb.Protocol(f.Frontend.Protocol),
		Source: encodeAddr(f.Source.Addr), Frontend: encodeAddr(f.Frontend.Addr), Destination: encodeAddr(f.Destination.Addr),
		Verdict: text(f.Verdict), Reason: text(f.Reason),
		Pid: f.Process.PID, Process: text(f.Process.Name), Cgroup: text(f.Process.Cgroup), CgroupId: f.Process.CgroupID,
	}
}

func decodeFlow(f *pb.Flow) *dataplane.Flow {
	binding := func(b []byte) dataplane.Binding {
		return dataplane.Binding{Addr: ParseAddr(b), Protocol: enum[dataplane.Protocol](f.GetProtocol())}
	}
	return &dataplane.Flow{
		At: decodeTime(f.GetAt()), Service: DecodeKey(f.GetService()), Endpoint: f.GetEndpoint(),
		Source: binding(f.GetSource()), Frontend: binding(f.GetFrontend()), Destination: binding(f.GetDestination()),
		Verdict: f.GetVerdict(), Reason: f.GetReason(),
		Process: dataplane.Process{PID: f.GetPid(), Name: f.GetProcess(), Cgroup: f.GetCgroup(), CgroupID: f.GetCgroupId()},
	}
}

// EncodeFlowOptions returns the wire form of a wish for flow events; nil is none.
func EncodeFlowOptions(o *dataplane.FlowOptions) *pb.FlowRequest {
	if o == nil {
		return nil
	}
	return &pb.FlowRequest{SampleOneIn: clamp(o.SampleOneIn), MaxPerSecond: clamp(o.MaxPerSecond)}
}

// DecodeFlowOptions reads what EncodeFlowOptions wrote, and fills in defaults.
func DecodeFlowOptions(m *pb.FlowRequest) *dataplane.FlowOptions {
	if m == nil {
		return nil
	}
	o := &dataplane.FlowOptions{SampleOneIn: int(max(1, m.GetSampleOneIn())), MaxPerSecond: int(m.GetMaxPerSecond())}
	if o.MaxPerSecond == 0 {
		o.MaxPerSecond = DefaultFlowsPerSecond
	}
	return o
}

// DefaultFlowsPerSecond bounds flow events where the request does not.
const DefaultFlowsPerSecond = 100
