package cli

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

// ports reserves port numbers among the processes of this command: each number
// is also the name of an abstract socket, which the kernel frees with the
// process. Without it two clusters that start together would choose the same.
type ports struct {
	held []net.Listener
}

// take returns the first free port from first on, on an address of this host.
func (p *ports) take(addr netip.Addr, first int) (int, error) {
	for port := first; port <= 65535; port++ {
		lock, err := net.Listen("unix", fmt.Sprintf("@fairlead-local-port-%d", port))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("reserve a port: %w", err)
		}
		l, err := net.Listen("tcp", netip.AddrPortFrom(addr, uint16(port)).String())
		if err != nil {
			_ = lock.Close()
			if errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EACCES) {
				continue
			}
			return 0, fmt.Errorf("find a free port: %w", err)
		}
		_ = l.Close()
		p.held = append(p.held, lock)
		return port, nil
	}
	return 0, fmt.Errorf("no free port from %d on at %v", first, addr)
}

func (p *ports) close() {
	for _, l := range p.held {
		_ = l.Close()
	}
}
