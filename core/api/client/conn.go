package client

import "google.golang.org/grpc"

// Conn is the connection, for the services beside Agent that are served on it: those
// of etcd v3. It ends with Close.
func (c *Client) Conn() grpc.ClientConnInterface { return c.conn }

// Explain turns the error of a call over Conn into words, as those of this package
// are; nil stays nil.
func (c *Client) Explain(call string, err error) error {
	if err == nil {
		return nil
	}
	return c.callError(call, err)
}
