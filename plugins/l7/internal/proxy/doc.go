// Package proxy is the proxy as an http.Handler: it finds the service of a
// request, chooses an endpoint, passes the request on and the answer back, and
// tries elsewhere where that can do no harm.
//
//	ServeHTTP ─► route.Table ─► Target ─► balance.Pool ─► endpoint ─► backend.Pool
//	   │                                                                  │
//	   └── exchange: tries ─ upload ─ answer ─ tunnel ──────── backend.Conn
//
// The server half of HTTP is net/http, the client half package backend; so the
// rules of httputil.ReverseProxy.Rewrite hold (never those of Director, which
// lets a client name away what the proxy adds), but they are our own code.
//
// Who owns what: the provider alone calls Swap, Update and Remove, which write
// the table and the targets; requests read both through atomic pointers. An
// exchange belongs to the goroutine of its request. What belongs to an endpoint
// (connections, load, ejection, tunnels) stays for as long as the endpoint keeps
// id and address, whatever else a snapshot changes. One goroutine of the proxy
// sweeps idle connections and cuts endpoints whose drain time is over.
package proxy
