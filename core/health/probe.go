package health

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// userAgent is how probes name themselves.
const userAgent = "fairlead-health"

// probe is all that has to be known of a check to probe it. It holds copies:
// the entry itself belongs to the table.
type probe struct {
	entry   *entry
	kind    Kind
	target  netip.AddrPort
	request []byte // all that is sent
	timeout time.Duration
	patient bool   // it may take its whole timeout
	last    string // output of the probe before: the same answer again takes no memory
}

// flight is a probe under way.
type flight struct {
	probe
	began time.Time
	conn  *conn
	sent  bool   // the request is
	got   []byte // what came of the answer so far

	handed bool // to a worker; the Runner's mutex guards it
}

func (e *entry) probe() probe {
	return probe{entry: e, kind: e.check.Kind, target: e.target, request: e.request, timeout: e.check.timeout(), patient: e.mayHang(), last: e.last.output}
}

func (f *flight) deadline() time.Time { return f.began.Add(f.timeout) }

// request returns what a probe sends.
func request(e *entry) []byte {
	switch e.check.Kind {
	case HTTP:
		return httpRequest(e)
	case GRPC:
		return grpcRequest(e)
	}
	return nil
}

// start makes as much of a probe as can be made without waiting. Where
// instances are near, as they are, this is all but the answer.
func (f *flight) start() (out outcome, ended bool) {
	// An HTTP server that answered has no use for the connection any more, and
	// thousands a minute that wait for late packets are of none. Others may not
	// expect a reset.
	var err error
	if f.conn, err = open(f.target, f.kind == HTTP); err != nil {
		return failure(err), true
	}
	if f.kind == TCP {
		done, err := f.conn.try()
		if err == nil && !done {
			return outcome{}, false
		}
		return f.connected(err), true
	}
	n, err := unix.Write(f.conn.fd, f.request)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return outcome{}, false // not connected yet
	case err != nil:
		return failure(err), true
	case n < len(f.request):
		return failure(errors.New("the request was not taken whole")), true
	}
	f.sent = true
	return outcome{}, false
}

// resume makes the rest of a probe, until ctx or the deadline ends it.
func (f *flight) resume(ctx context.Context, h *reader) outcome {
	stop, err := f.conn.wait(ctx, f.deadline())
	if err != nil {
		return failure(err)
	}
	defer stop()
	if !f.sent {
		err = f.conn.connect()
	}
	if f.kind == TCP {
		return f.connected(err)
	}
	if err == nil && !f.sent {
		_, err = f.conn.file.Write(f.request)
	}
	if err != nil {
		return failure(err)
	}
	out, err := f.answer(h, &prefixed{f.got, f.conn.file})
	if err != nil {
		return failure(err)
	}
	return out
}

// answer is the end of a probe that sent something; the error says what did not
// come whole.
func (f *flight) answer(h *reader, from io.Reader) (outcome, error) {
	if f.kind == GRPC {
		return h.readGRPC(from)
	}
	return h.readHTTP(from, f.last)
}

// connected is the end of a TCP probe: the connection stands, unless err.
func (f *flight) connected(err error) outcome {
	if err == nil && f.conn.isSelf(f.target) {
		// Nobody listens, and the kernel chose the target's port for this end.
		err = unix.ECONNREFUSED
	}
	if err != nil {
		return failure(err)
	}
	return outcome{output: "connected"}
}

// end frees what the probe holds.
func (f *flight) end() {
	if f.conn != nil {
		f.conn.close()
	}
}
