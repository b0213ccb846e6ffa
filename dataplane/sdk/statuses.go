package sdk

import (
	"cmp"
	"slices"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

// statuses are those of the services that are not simply programmed.
type statuses struct {
	byKey map[dataplane.Key]dataplane.ServiceStatus
	wire  []*pb.ServiceStatus // the same, in the order of the keys; not written after merge
}

// merge joins what was kept from the provider with what the provider says. Of
// the former it saw nothing, or an old version: they go first.
func merge(refused, provider []dataplane.ServiceStatus) statuses {
	out := statuses{byKey: make(map[dataplane.Key]dataplane.ServiceStatus, len(refused)+len(provider))}
	for _, list := range [][]dataplane.ServiceStatus{provider, refused} {
		for _, st := range list {
			if st.Status > dataplane.StatusProgrammed && st.Status <= dataplane.StatusUnsupported {
				out.byKey[st.Service] = st
			}
		}
	}
	for _, st := range sorted(out.byKey) {
		out.wire = append(out.wire, transfer.EncodeStatus(st))
	}
	return out
}

// since returns what is different from before. A service that is in next and has
// no status any more is programmed.
func (s statuses) since(was statuses, next *dataplane.Snapshot) []dataplane.ServiceStatus {
	news := make(map[dataplane.Key]dataplane.ServiceStatus)
	for k, st := range s.byKey {
		if was.byKey[k] != st {
			news[k] = st
		}
	}
	for k := range was.byKey {
		if _, still := s.byKey[k]; !still && next.Service(k) != nil {
			news[k] = dataplane.ServiceStatus{Service: k, Status: dataplane.StatusProgrammed}
		}
	}
	return sorted(news)
}

func recovered(news []dataplane.ServiceStatus) []*pb.ServiceStatus {
	var out []*pb.ServiceStatus
	for _, st := range news {
		if st.Status == dataplane.StatusProgrammed {
			out = append(out, transfer.EncodeStatus(st))
		}
	}
	return out
}

func sorted(m map[dataplane.Key]dataplane.ServiceStatus) []dataplane.ServiceStatus {
	out := make([]dataplane.ServiceStatus, 0, len(m))
	for _, st := range m {
		out = append(out, st)
	}
	slices.SortFunc(out, func(a, b dataplane.ServiceStatus) int { return cmp.Compare(a.Service.String(), b.Service.String()) })
	return out
}
