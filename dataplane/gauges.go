package dataplane

// Names of two counters by which a provider shows what is in the system now, so
// that a host and the conformance suite can tell an answer from the truth. They
// are the exception among counters: they also fall. A provider reads them from
// the system, or from what it did there, never from what it was told to do.
const (
	// GaugeServices is the number of services in the system. It has no service.
	GaugeServices = "programmed_services"
	// GaugeEndpoints is the number of endpoints of one service in the system.
	// Every service there has it, also with 0.
	GaugeEndpoints = "programmed_endpoints"
)

// IsGauge reports whether a counter of this name may fall.
func IsGauge(name string) bool { return name == GaugeServices || name == GaugeEndpoints }
