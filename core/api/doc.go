// Package api lets others see and steer one agent: the fairlead.v1 gRPC
// service on a Unix socket and, but for what steers, on TCP; beside it the store
// by the services of etcd v3; metrics and health over HTTP.
//
// The package knows nothing of gossip. What it serves comes in through small
// role interfaces ([Members], [Events], [Services], [Registrar], [Leaver],
// [Settings], [Identity]), which core/agent implements on top of
// core/membership, core/view, core/health and core/config.
//
//	api.socket   everything; mode 0600, so only the agent's user gets there.
//	             Calls to the store name the system's keyspace in their metadata
//	             to reach it: see [etcd.ByMetadata]
//	api.listen   Status, Members, Events, Services, Endpoints, Raft, and what
//	             providers that run by themselves follow and report; the store's
//	             user keyspace, written too. Whoever connects may, or with
//	             [TLSConfig] who has a certificate
//	both         GET /health and /version by HTTP/1.1, as of etcd
//	http.listen  /metrics, /livez, /readyz
package api
