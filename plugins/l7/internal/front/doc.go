// Package front is the side of the proxy that clients see: listeners, their
// connections, and how both end. It knows nothing of routes and backends.
//
//	door (listener, one goroutine that accepts)
//	  └─► crowd (who came in by it, up to a bound)
//	  └─► era: the http.Server of the settings that are in force ─► handler
//
// New settings begin a new era: connections that are open stay in the one in
// which they began, so none is dropped. An address that stays keeps its
// listener; one that goes is closed only when those that come are open.
//
// A crowd above its bound does not wait in the queue of the kernel, as nobody
// there is told anything: who waits for a request makes room for who has one,
// and where all have one, the newcomer is told 503 (Service Unavailable).
package front
