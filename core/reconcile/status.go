package reconcile

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

// maxStatusLines bounds what one answer writes to the log.
const maxStatusLines = 20

// maxStrangers bounds the services in one answer that the provider was not told
// of in this life of the agent, such as those that it fails to remove.
const maxStrangers = 1000

// Status is how one provider fares.
type Status struct {
	Provider   string
	Connected  bool
	Generation uint64    // that it has; 0: not known
	Epoch      uint64    // of the view that this generation shows
	Complete   bool      // the generation may have taken services away
	At         time.Time // of the last answer
	Services   int       // in that generation
	Endpoints  int
	Error      error // why the last call failed; nil if it did not
	Health     dataplane.Health

	// Statuses are those of services that are not simply programmed, by key.
	Statuses []dataplane.ServiceStatus
}

// standing guards a Status and tells what changed in it.
type standing struct {
	log      *slog.Logger
	metrics  *Metrics
	label    string // in metrics
	mu       sync.Mutex
	s        Status
	services map[dataplane.Key]dataplane.ServiceStatus
	has      *dataplane.Snapshot // what the provider accepted last; nil: nothing yet
}

func (s *standing) init(cfg Config) {
	s.log, s.metrics, s.label, s.s.Provider = cfg.Log, cfg.Metrics, cfg.label(), cfg.Provider
	s.services = make(map[dataplane.Key]dataplane.ServiceStatus)
}

func (s *standing) get() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.s
	out.Statuses = slices.SortedFunc(maps.Values(s.services), func(a, b dataplane.ServiceStatus) int { return a.Service.Compare(b.Service) })
	return out
}

func (s *standing) connected(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.s.Connected = yes
	if !yes {
		s.s.Health = dataplane.Health{}
	}
	s.metrics.connected(s.label, yes)
}

func (s *standing) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.s.Error = err
}

func (s *standing) health(h dataplane.Health) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.s.Health.State != h.State {
		s.log.Info("health of the data path", "state", h.State.String(), "was", s.s.Health.State.String(), "reasons", strings.Join(h.Reasons, "; "))
	}
	s.s.Health = h
}

// concerns reports whether a status is about a service that the provider has
// or was heard of before. Others would add up without bound.
func (s *standing) concerns(st dataplane.ServiceStatus) bool {
	_, known := s.services[st.Service]
	return known || s.has != nil && s.has.Service(st.Service) != nil
}

// one takes in the status of one service.
func (s *standing) one(st dataplane.ServiceStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.concerns(st) {
		return
	}
	next := maps.Clone(s.services)
	next[st.Service] = st
	s.replace(next)
}

// applied takes in an answer; nil is none, which changes no status. The answer
// to whatever changed something lists all services that are not simply
// programmed; that to "unchanged" need not know what Watch told meanwhile.
func (s *standing) applied(d *delivered, r *pb.ReconcileResponse, unchanged bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.s.Generation, s.s.Epoch, s.s.Complete = d.snapshot.Generation, d.view.Epoch, d.snapshot.Completeness.Complete()
	s.s.Services, s.s.Endpoints, s.s.Error, s.s.At = d.snapshot.Len(), d.snapshot.EndpointCount(), nil, time.Now()
	s.metrics.applied(s.label, s.s)
	s.has = d.snapshot
	if r == nil {
		return
	}
	_, result := transfer.DecodeResult(r)
	s.metrics.operations(s.label, result.Operations)
	next := make(map[dataplane.Key]dataplane.ServiceStatus, len(result.Statuses))
	if unchanged {
		maps.Copy(next, s.services)
	}
	strangers := 0
	for _, st := range result.Statuses {
		if !s.concerns(st) {
			if strangers++; unchanged || strangers > maxStrangers {
				continue
			}
		}
		next[st.Service] = st
	}
	s.replace(next)
}

// replace puts other statuses in place and logs the differences, a bounded
// number of them.
func (s *standing) replace(next map[dataplane.Key]dataplane.ServiceStatus) {
	maps.DeleteFunc(next, func(_ dataplane.Key, st dataplane.ServiceStatus) bool { return st.Status == dataplane.StatusProgrammed })
	var news []dataplane.ServiceStatus
	for k, st := range next {
		if s.services[k] != st {
			news = append(news, st)
		}
	}
	for k := range s.services {
		if _, still := next[k]; !still {
			news = append(news, dataplane.ServiceStatus{Service: k, Status: dataplane.StatusProgrammed})
		}
	}
	s.services = next
	if len(news) == 0 {
		return
	}
	slices.SortFunc(news, func(a, b dataplane.ServiceStatus) int {
		return cmp.Or(cmp.Compare(a.Status, b.Status), a.Service.Compare(b.Service))
	})
	slices.Reverse(news) // the worst first
	for i, st := range news {
		switch {
		case i == maxStatusLines:
			s.log.Warn("more services changed their status", "more", len(news)-i)
		case i > maxStatusLines:
		case st.Status == dataplane.StatusProgrammed:
			s.log.Info("service is programmed, or gone", "service", st.Service.String())
		default:
			s.log.Warn("service is not programmed as it should be", "service", st.Service.String(), "status", st.Status.String(), "reason", st.Reason, "message", st.Message)
		}
	}
	s.metrics.statuses(s.label, next)
}
