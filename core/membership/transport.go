package membership

import (
	"context"
	"net"
	"net/netip"
)

// Transport carries what nodes say to each other: datagrams, best effort, and
// streams. ListenNet is the real one; memtransport has one in memory. All
// methods may be called from several goroutines.
type Transport interface {
	// LocalAddr is the bound address; datagrams and streams share it.
	LocalAddr() netip.AddrPort

	// ReadPacket waits for a datagram and copies it into buf, cut to its
	// length. After Close it returns net.ErrClosed; another error concerns one
	// datagram only.
	ReadPacket(buf []byte) (n int, from netip.AddrPort, err error)

	// WritePacket sends a datagram and does not keep data.
	WritePacket(data []byte, to netip.AddrPort) error

	// DialStream opens a stream. Its error matches syscall.ECONNREFUSED if,
	// and only if, the host answered that nobody listens.
	DialStream(ctx context.Context, to netip.AddrPort) (net.Conn, error)

	// AcceptStream waits for a stream that a peer opened. After Close it
	// returns net.ErrClosed; another error may pass.
	AcceptStream() (net.Conn, error)

	// Close ends both waits and releases the address.
	Close() error
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
