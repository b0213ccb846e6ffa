// Package client calls the API of a Fairlead agent.
//
//	c, err := client.Dial(ctx, "/run/fairlead/api.sock")
//	if err != nil { … }
//	defer c.Close()
//	members, err := c.Members(ctx)
//
// Errors are short and say what to do; those of [ErrNoAgent] mean that there
// was nobody to ask.
package client

import (
	"context"
	"iter"
	"math"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/fairlead/fairlead/core/api/fairleadv1"
	"github.com/fairlead/fairlead/core/model"
)

// maxAnswerBytes bounds one answer: the table of 10,000 members is below 2 MiB.
const maxAnswerBytes = 32 << 20

// Client is a connection to one agent. Its methods may be called concurrently.
type Client struct {
	target  string
	options []Option
	line    line
	conn    *grpc.ClientConn
	agent   fairleadv1.AgentClient
}

// Status is what an agent says of itself.
type Status struct {
	ID        model.NodeID
	Name      string
	Cluster   string
	Addr      string // gossip, host:port as advertised
	Version   string
	GoVersion string
	PID       int
	Started   time.Time
	Ready     bool
	NotReady  string // why Ready is false
	Listeners map[string]string
}

// Member is one row of the agent's member table.
type Member struct {
	ID          model.NodeID
	Name        string
	Addr        string // gossip, host:port as advertised
	State       model.State
	Epoch       uint64
	Incarnation uint64
	Since       time.Time // of the state, on the agent's clock
	Self        bool      // the agent that answers
	Role        string
	HeldUntil   time.Time // it announced a restart, and is not accused before; zero: none in force
}

// Event is one transition as the agent saw it, or, with Resync, the note that
// events were missed.
type Event struct {
	Seq    uint64
	At     time.Time
	Kind   string // joined, updated, suspected, refuted, died, left, revived, reaped, …
	Member Member
	Was    model.Value
	From   string // who told, host:port; empty if the agent saw it itself
	Detail string

	Resync  bool
	Members []Member // with Resync: the table at Seq
}

// Setting is one configuration key of the agent.
type Setting struct {
	Key, Value, Origin string
}

// Dial connects to the agent at target: the path of a Unix socket, host:port, or
// https://host:port for one whose client API is under TLS. It fails with ErrNoAgent
// if nobody listens there, and with ErrTLS if the two do not agree on TLS.
func Dial(ctx context.Context, target string, options ...Option) (*Client, error) {
	c := &Client{target: target, options: options}
	c.line.target, c.line.patience = parseTarget(target), time.Second
	for _, o := range options {
		o(&c.line)
	}
	// A look before gRPC: its errors name neither cause nor remedy.
	probe, err := c.line.dial(ctx)
	if err != nil {
		return nil, err
	}
	_ = probe.Close()

	conn, err := grpc.NewClient("passthrough:///fairlead",
		grpc.WithTransportCredentials(insecure.NewCredentials()), // TLS, if any, is below it
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return c.line.dial(ctx) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswerBytes)),
		grpc.WithDisableServiceConfig(),
	)
	if err != nil {
		return nil, dialError(target, err)
	}
	c.conn, c.agent = conn, fairleadv1.NewAgentClient(conn)
	return c, nil
}

// Redial connects once more to where this client does, which it leaves as it is.
func (c *Client) Redial(ctx context.Context) (*Client, error) {
	return Dial(ctx, c.target, c.options...)
}

// Target returns what was dialled.
func (c *Client) Target() string { return c.target }

// Close ends the connection and every call on it.
func (c *Client) Close() error { return c.conn.Close() }

// Status asks which agent answers.
func (c *Client) Status(ctx context.Context) (Status, error) {
	r, err := c.agent.Status(ctx, &fairleadv1.StatusRequest{})
	if err != nil {
		return Status{}, c.callError("status", err)
	}
	st := Status{
		ID:        model.NodeID(r.GetId()),
		Name:      r.GetName(),
		Cluster:   r.GetCluster(),
		Addr:      r.GetAddr(),
		Version:   r.GetVersion(),
		GoVersion: r.GetGoVersion(),
		PID:       int(r.GetPid()),
		Started:   r.GetStarted().AsTime(),
		Ready:     r.GetReady(),
		NotReady:  r.GetNotReadyReason(),
		Listeners: make(map[string]string),
	}
	for _, l := range r.GetListeners() {
		st.Listeners[l.GetName()] = l.GetAddress()
	}
	return st, nil
}

// Members returns the member table, sorted by name, then id.
func (c *Client) Members(ctx context.Context) ([]Member, error) {
	r, err := c.agent.Members(ctx, &fairleadv1.MembersRequest{})
	if err != nil {
		return nil, c.callError("members", err)
	}
	return members(r.GetMembers()), nil
}

// Events yields the transitions after sequence number after (0: all that the
// agent still keeps); with follow it goes on until ctx ends or the agent stops.
// An error ends the sequence.
func (c *Client) Events(ctx context.Context, after uint64, follow bool) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // ends the stream when the caller stops early
		stream, err := c.agent.Events(ctx, &fairleadv1.EventsRequest{AfterSeq: after, Follow: follow})
		for err == nil {
			var r *fairleadv1.EventsResponse
			if r, err = stream.Recv(); err == nil && !yield(event(r), nil) {
				return
			}
		}
		if !isEOF(err) {
			yield(Event{}, c.callError("events", err))
		}
	}
}

// Leave makes the agent say left and returns its name once that has spread;
// the process then stops by itself.
func (c *Client) Leave(ctx context.Context) (name string, err error) {
	name, _, err = c.Depart(ctx, false)
	return name, err
}

// Depart is Leave, by force also if the servers of the store would lack this one. It
// returns what became of the node's part in the store, too; nothing if it had none.
func (c *Client) Depart(ctx context.Context, force bool) (name, server string, err error) {
	r, err := c.agent.Leave(ctx, &fairleadv1.LeaveRequest{Force: force})
	if err != nil {
		return "", "", c.callError("leave", err)
	}
	return r.GetName(), r.GetServer(), nil
}

// Restart makes the agent announce that it is back within hold, 1 ms to 30 s,
// and returns its name once that has spread; the process then stops by itself.
func (c *Client) Restart(ctx context.Context, hold time.Duration) (name string, err error) {
	ms := uint32(min(max(hold.Milliseconds(), 1), math.MaxUint32)) // 0 would be a good-bye
	r, err := c.agent.Leave(ctx, &fairleadv1.LeaveRequest{HoldMs: ms})
	if err != nil {
		return "", c.callError("restart", err)
	}
	return r.GetName(), nil
}

// Config returns every configuration key with the value in force.
func (c *Client) Config(ctx context.Context) ([]Setting, error) {
	r, err := c.agent.Config(ctx, &fairleadv1.ConfigRequest{})
	if err != nil {
		return nil, c.callError("config", err)
	}
	out := make([]Setting, 0, len(r.GetEntries()))
	for _, e := range r.GetEntries() {
		out = append(out, Setting{Key: e.GetKey(), Value: e.GetValue(), Origin: e.GetOrigin()})
	}
	return out, nil
}
