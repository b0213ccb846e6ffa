package api

import (
	"errors"
	"time"

	"github.com/fairlead/fairlead/core/model"
)

// Errors that a Registrar or Services wraps, for the code of the answer.
var (
	// ErrInvalid: the request says something wrong.
	ErrInvalid = errors.New("invalid")
	// ErrNotFound: what it names does not exist.
	ErrNotFound = errors.New("not found")
	// ErrRefused: it is well formed, and not possible as things are.
	ErrRefused = errors.New("refused")
)

// Refusal is an error whose text is for the caller alone: its kind shows in the
// code of the answer, not in the words.
type Refusal struct {
	Kind error // ErrInvalid, ErrNotFound or ErrRefused
	Err  error
}

// Error implements error.
func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap returns the kind and the cause.
func (r *Refusal) Unwrap() []error { return []error{r.Kind, r.Err} }

// Services gives the services of all nodes.
type Services interface {
	// Services lists them by name, as one view.
	Services() ServiceList
	// Endpoints returns one with all its instances, or an error of ErrNotFound.
	Endpoints(service model.ServiceKey) (ServiceDetail, error)
}

// Registrar changes what this node says that it runs.
type Registrar interface {
	// Register adds or replaces services; name is what errors call the text.
	// With replace, instances that the text leaves out go.
	Register(name, definition string, replace bool) (Registration, error)
	// Deregister takes back a service that was registered, or one instance of
	// it, and returns which instances are gone.
	Deregister(service model.ServiceKey, instance string) (gone []string, err error)
	// Maintain takes instances out of service or puts them back: those of the
	// service, or of all if its name is empty.
	Maintain(on bool, service model.ServiceKey, instance string) (changed bool, err error)
}

// Registration is what Register did.
type Registration struct {
	Services []model.ServiceKey
	Changed  bool
}

// ServiceList is all services of one view.
type ServiceList struct {
	Epoch        uint64
	Completeness string // incomplete: what is missing may only not be known yet
	Services     []Service
}

// ServiceDetail is one service of one view.
type ServiceDetail struct {
	Epoch        uint64
	Completeness string
	Service      Service
	Definitions  []Definition
	Endpoints    []Endpoint
}

// Service is one service as the agent sees it.
type Service struct {
	Key         model.ServiceKey
	VIP         string   // empty: none
	Ports       []string // 80/tcp
	Ready       int      // endpoints that take connections
	Total       int      // instances
	DefinedBy   string   // name of the node whose definition counts; empty: nobody's
	DefinedByID model.NodeID
	Disagreeing []string // names of nodes that define it in another way
	Source      string   // where this node defines it; empty: it does not
	Conflicts   []Conflict
}

// Conflict is what a service wants and another one has.
type Conflict struct {
	Kind   string // frontend, host
	What   string // 10.200.0.10:80/tcp
	Holder model.ServiceKey
	Node   string    // whose definition of the holder counts
	Since  time.Time // of the holder's registration; zero: it is built in
	Remedy string
}

// Definition is what one node says of a service.
type Definition struct {
	Node       string
	NodeID     model.NodeID
	Counts     bool
	Up         bool
	Registered time.Time
	Says       string   // in words
	Differs    []string // in which parts, from the one that counts
}

// Endpoint is an instance, and whether connections go to it.
type Endpoint struct {
	Node        string
	NodeID      model.NodeID
	Instance    string
	In          bool
	Reason      string
	Detail      string
	Addr        string // as this node reaches it; empty unless it is an endpoint
	AddrForeign string
	State       string // what its node says
	Since       time.Time
	Weight      uint16
	Own         bool
	Checks      []CheckResult // of own ones only
}

// CheckResult is what the last probe of a check found.
type CheckResult struct {
	Kind, Target string
	Passing      bool
	Output       string
	At           time.Time // zero: none yet
	Successes    int
	Failures     int
}
