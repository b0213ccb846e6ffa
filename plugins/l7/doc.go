// Package l7 is the data plane for HTTP: a reverse proxy whose backends are the
// endpoints of a snapshot. It runs under an agent, as any provider, or by itself
// (README.md).
//
//	agent ── Reconcile ──┐                  ┌── static services of l7.yaml
//	                     ▼                  ▼
//	           Provider.Reconcile(next, delta): for each change
//	                     │ target := proxy.Target(key)            made if it is new
//	                     │ editor.Set(route.Service{…, target})   refused: nothing of it changes
//	                     │ proxy.Update(svc, removed)             pools, balance, drains
//	                     │ or proxy.Remove(key, removed), editor.Delete(key)
//	                     ▼ proxy.Swap(editor.Done())              at once, for new requests
//	               proxy.Proxy ◄── ServeHTTP ── front.Front ◄── client
//	                     │                      listeners, http1 guard, http.Server
//	                     └──► backend
//
// Who owns what: Provider owns the route.Table[*proxy.Target] and the statuses
// of services; the proxy owns all that belongs to an endpoint (pool, load,
// ejection, tunnels) and finds it again by service and endpoint id, so that a
// snapshot moves nothing that did not change; front owns listeners, connections
// and their end. Besides, the Provider needs of the proxy: Configure(settings),
// Stats(yield func(dataplane.Counter) bool) with what is in force (GaugeServices,
// GaugeEndpoints), Tunnels() and CloseTunnels() for the end of the process.
package l7
