package transport

import (
	"context"
	"crypto/tls"
	"io"
	"net"

	"google.golang.org/grpc/credentials"
	grpcpeer "google.golang.org/grpc/peer"

	"github.com/fairlead/fairlead/core/identity"
)

// authInfo says who is at the other end of a connection. Who it is is found out
// once: a connection goes on when the certificate that began it has run out.
type authInfo struct {
	credentials.CommonAuthInfo
	node identity.Node
}

// AuthType implements credentials.AuthInfo.
func (authInfo) AuthType() string { return "fairlead" }

// PeerNode returns the node that a call comes from, verified; false if the call
// did not come by a Port.
func PeerNode(ctx context.Context) (node identity.Node, ok bool) {
	p, ok := grpcpeer.FromContext(ctx)
	if !ok {
		return identity.Node{}, false
	}
	info, ok := p.AuthInfo.(authInfo)
	return info.node, ok
}

// secured finishes the handshake of a connection, which is in the ledger from then
// on, unless that is nil.
func secured(ctx context.Context, k *identity.Keeper, l *ledger, c *tls.Conn) (net.Conn, authInfo, error) {
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, authInfo{}, err
	}
	conn := l.enter(c)
	// The handshake asked the same. If the secrets changed since, and nobody looks at
	// the ledger any more, it is found out here.
	node, err := k.Peer(c.ConnectionState())
	if err != nil {
		_ = conn.Close() // why is said already
		return nil, authInfo{}, err
	}
	return conn, authInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, node}, nil
}

// clientCredentials are for connections to one node.
type clientCredentials struct {
	keeper *identity.Keeper
	node   string
	ledger *ledger // nil: none
}

var _ credentials.TransportCredentials = clientCredentials{}

// ClientHandshake implements credentials.TransportCredentials.
func (c clientCredentials) ClientHandshake(ctx context.Context, _ string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := secured(ctx, c.keeper, c.ledger, tls.Client(raw, c.keeper.Client(c.node)))
	if err != nil {
		return nil, nil, err
	}
	// In TLS 1.3 this side is done before the other one has looked at the
	// certificate. What it thinks of it is there before its first byte, which in
	// HTTP/2 does not wait for anything; who writes before may find the connection
	// closed, and not why. gRPC closes it when ctx ends.
	begun := &begun{Conn: conn}
	if _, err := io.ReadFull(conn, begun.first[:]); err != nil {
		_ = conn.Close() // it may be in the ledger
		return nil, nil, err
	}
	return begun, info, nil
}

// begun is a connection of which the first byte was read already.
type begun struct {
	net.Conn
	first [1]byte
	given bool
}

// Read implements net.Conn.
func (b *begun) Read(p []byte) (int, error) {
	if b.given || len(p) == 0 {
		return b.Conn.Read(p)
	}
	b.given = true
	return copy(p, b.first[:]), nil
}

// ServerHandshake implements credentials.TransportCredentials.
func (clientCredentials) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errOneSided
}

// Info implements credentials.TransportCredentials.
func (clientCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials.
func (c clientCredentials) Clone() credentials.TransportCredentials { return c }

// OverrideServerName implements credentials.TransportCredentials: names of hosts
// mean nothing here.
func (clientCredentials) OverrideServerName(string) error { return nil }
