// Package http1 refuses HTTP/1 requests that two parsers might read in two
// ways, before net/http's server sees them.
//
// A Scanner follows the framing of a request stream; it is pure. A Guard puts
// one between a connection and the server:
//
//	srv := &http.Server{Handler: http1.Handler(h, nil), ConnContext: http1.ConnContext}
//	srv.Serve(http1.Listener(l, http1.Limits{}))
//
// A refused request head never reaches h. In its place the server is given a
// request of the guard's own, which Handler answers with the refusal: so the
// answer keeps its place behind those to earlier requests, no byte gets into
// the middle of another response, and the connection ends after it. A refusal
// in the middle of a body is an error of that body's Read that is a *Refusal
// for errors.As.
package http1
