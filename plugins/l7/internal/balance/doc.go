// Package balance chooses the endpoint that a request goes to.
//
// What is learned about an endpoint (requests in flight, latency, ejection)
// belongs to its identity, which is service, endpoint id and address, and so
// survives every snapshot that still has it. A Registry is given each version
// of a service; the Pool that it keeps per service is what the hot path reads,
// without locks and without allocation. Time and randomness are arguments;
// there are no goroutines and no sockets.
package balance
