// Package l7 measures the HTTP proxy beside nginx, HAProxy and a bare
// httputil.ReverseProxy, all in one run.
//
//	make bench-l7                   everything here (about 5 minutes)
//	go test -C test/bench ./...     a moment of it: does it still work?
//
// # What is counted
//
// CPU per request is the clock of the scheduler for the proxy's processes, user
// and system time, in a window, divided by the answers that the generator got
// in that window. Each proxy has one CPU to itself, as far as this run goes:
// GOMAXPROCS=1, one worker, one thread, pinned to the last CPU. The generator, which
// is the test itself, and the backend have the others. On a machine with one
// CPU nothing is pinned.
//
// The generator keeps as many requests under way as it has connections: each
// sends its next request when it has the whole answer. It counts the answers, the
// backend counts the requests, and both numbers have to be equal. Latencies are
// those of full load, so they say how fast a proxy is, not how it fares at a
// rate that it can bear. The column direct is the backend asked without a proxy:
// its CPU is the backend's.
//
// Rounds are interleaved: in each one, every proxy has its window, beginning with
// another one each time. Ratios are those of windows in the same round; shown
// are medians, lowest and highest. A/A is a second process of the same program, measured
// as if it were another proxy: the noise.
//
// # What makes it fair
//
// All keep their connections to clients and to the backend, write no access
// log, and add X-Forwarded-For, -Host and -Proto. nginx speaks HTTP/1.1 to the
// backend and streams request bodies; HAProxy may splice, and shares connections
// to the backend. Whatever else Fairlead does for each request it does here too:
// metrics, request ids, choice among endpoints, budgets, watching for clients
// that go away.
//
// A number over its bar is marked OVER; it fails nothing, as machines differ.
package l7
