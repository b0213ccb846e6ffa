// Package dataplane measures what it costs to keep a provider at the view: the
// reference provider as a process of its own, under the host and the loop that
// agents use. The host is the test itself.
//
//	make bench-dataplane            everything here (about 3 minutes)
//	go test -C test/bench ./...     a small view for a moment: does it still work?
//
// # What is counted
//
// Times are those of one call of Reconcile, from its opening to its answer, as
// the loop makes it: encoding, the socket, decoding and the provider's work
// are in it. Bytes are those on the socket with the framing of HTTP/2, counted
// by a proxy between the loop and a provider that runs by itself; health
// checks are off there. Peaks are VmHWM, which is reset before each
// measurement. Private memory is that of smaps_rollup, in two parts: anonymous,
// and pages of files, which count as private while one process runs the
// program. CPU is the scheduler's clock of each process: of the host, that is the test, this
// includes the loop, the health checks and whatever the Go runtime does.
//
// A number over its bar is marked OVER; it fails nothing, as machines differ.
package dataplane
