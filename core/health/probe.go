package health

import (
	"context"
	"fmt"
	"net/netip"
	"time"
)

// probe is all that a worker has to know of a check.
type probe struct {
	kind    Kind
	target  netip.AddrPort
	request []byte // of HTTP
	service string // of GRPC
}

// prober makes one probe at a time and keeps its buffers in between.
type prober struct {
	http *httpReader
}

func newProber() *prober { return &prober{http: newHTTPReader()} }

func (e *entry) probe() probe {
	return probe{kind: e.check.Kind, target: e.target, request: e.request, service: e.check.Service}
}

// request returns what a probe sends; not nil, so that an entry that has none is
// one that is never probed.
func request(e *entry) []byte {
	if e.check.Kind != HTTP {
		return []byte{}
	}
	return fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: fairlead-health\r\nAccept: */*\r\nConnection: close\r\n\r\n",
		e.check.Path, e.target)
}

// run makes one probe, until ctx or the deadline ends it. last is the output of
// the one before: the same answer again takes no memory.
func (p *prober) run(ctx context.Context, what probe, deadline time.Time, last string) outcome {
	switch what.kind {
	case HTTP:
		return p.runHTTP(ctx, what, deadline, last)
	case TCP:
		return runTCP(ctx, what, deadline)
	}
	return runGRPC(ctx, what, deadline)
}

// runTCP passes once the connection is there. It is reset, not closed: nothing
// of it stays behind on either side, whatever the rate.
func runTCP(ctx context.Context, what probe, deadline time.Time) outcome {
	conn, err := dial(ctx, what.target, deadline)
	if err != nil {
		return failure(err)
	}
	conn.close()
	return outcome{output: "connected"}
}
