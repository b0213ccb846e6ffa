// Package http1 refuses HTTP/1 requests that two parsers might read in two
// ways, before net/http's server sees them.
//
// A Scanner follows the framing of a request stream (RFC 9112); it is pure. A
// Guard puts one between a connection and the server:
//
//	srv := &http.Server{Handler: http1.Handler(h, nil), ConnContext: http1.ConnContext}
//	srv.Serve(http1.Listener(l, http1.Limits{}))
//
// All three are needed. A request head reaches the server when all of it was
// found good. In place of one that was not, the server is given a request of
// the guard's own, which Handler answers with the refusal: so the answer keeps
// its place behind those to earlier requests, no byte gets into the middle of
// another response, and the connection ends after it. A refusal in the middle
// of a body is an error of that body's Read, in which errors.As finds a
// *Refusal.
//
// What is let through is a subset of what net/http would take, and reads the
// same there. Not taken, beside what is malformed or ambiguous: CONNECT, TRACE,
// HTTP/2 without TLS (unless it is on), and upgrades other than to websocket,
// all with 501 (Not Implemented) because there is nothing behind them here.
package http1
