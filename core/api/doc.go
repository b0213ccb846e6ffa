// Package api lets others see and steer one agent: the fairlead.v1 gRPC
// service on a Unix socket and, but for what steers, on TCP; metrics and health
// over HTTP.
//
// The package knows nothing of gossip. What it serves comes in through small
// role interfaces ([Members], [Events], [Services], [Registrar], [Leaver],
// [Settings], [Identity]), which core/agent implements on top of
// core/membership, core/view, core/health and core/config.
//
//	api.socket   everything; mode 0600, so only the agent's user gets there
//	api.listen   Status, Members, Events, Services, Endpoints, and what
//	             providers that run by themselves follow and report; whoever
//	             connects may
//	http.listen  /metrics, /livez, /readyz
package api
