// Package backend is the client half of the proxy: connections to one address,
// the pool of those that wait for use, and one HTTP/1.1 exchange on each.
//
// It is not http.Transport, because the proxy must know what a Transport hides:
// whether a byte of the request has left this host (nothing sent: any request
// may be tried elsewhere), whether a byte of the answer has come (then none may),
// and it must never be tried again behind its back. A Transport also gives up an
// answer that is already there when the upload fails (golang#40747), and wakes
// four goroutines for each request where one does.
//
// Who owns what: a Conn belongs to the goroutine that got it from Pool.Get until
// it calls Put or Discard. Another goroutine may call Write and Interrupt only.
// The head of an answer is parsed by http.ReadResponse.
package backend
