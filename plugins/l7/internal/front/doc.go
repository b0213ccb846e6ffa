// Package front is the side of the proxy that clients see: listeners, their
// connections, and how both end. It knows nothing of routes and backends.
//
//	door (listener, one goroutine that accepts)
//	  └─► era: the http.Server of the settings that are in force ─► handler
//
// New settings begin a new era: connections that are open stay in the one in
// which they began, so none is dropped. An address that stays keeps its
// listener; one that goes is closed only when those that come are open.
package front
