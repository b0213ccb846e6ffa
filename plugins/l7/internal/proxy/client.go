package proxy

import (
	"net"
	"net/http"
	"syscall"

	"github.com/fairlead/fairlead/plugins/l7/internal/http1"
)

// rawClient is the socket that a request came in on; nil: unknown.
func rawClient(r *http.Request) syscall.RawConn {
	guard := http1.FromContext(r.Context())
	if guard == nil {
		return nil
	}
	c, ok := guard.Conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// closeWrite ends one direction of a connection that was taken over from the
// server, if it can end one alone; else both.
func closeWrite(c net.Conn) error {
	if g, ok := c.(*http1.Guard); ok {
		c = g.Conn
	}
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
