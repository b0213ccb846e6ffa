// Package l7 is the data plane for HTTP: a reverse proxy whose backends are the
// endpoints of a snapshot. It runs under an agent, as any provider, or by itself
// (README.md).
//
//	agent ── Reconcile ──┐                  ┌── static services of l7.yaml
//	                     ▼                  ▼
//	               Provider.Reconcile(next, delta)
//	                     │ route.Table (whole, immutable)   │ delta.Changes
//	                     ▼                                  ▼
//	               proxy.Proxy.Apply(table, changes)        pools, balance, drains
//	                     ▲
//	 client ── front.Front (listeners, http1 guard, http.Server) ── backend
//
// Who owns what: Provider owns the table of routes and the statuses of services;
// the proxy owns all that belongs to an endpoint (pool, load, ejection, tunnels)
// and finds it again by service and endpoint id, so that a snapshot moves
// nothing that did not change; front owns listeners, connections and their end.
package l7
