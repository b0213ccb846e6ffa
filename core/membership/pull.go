package membership

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/fairlead/fairlead/core/swim/wire"
)

// errNotThere reports that a member does not hold a definition either.
var errNotThere = errors.New("membership: the member has no such definition")

// pull fetches a definition in the background and tells the owner.
func (m *Membership) pull(req pullRequest) {
	m.wait.Go(func() {
		definition, err := m.fetch(req)
		_ = m.call(func(o *owner, now time.Time) { o.pulled(req, definition, err, now) }) // ErrClosed: nobody waits for it
	})
}

// pulled keeps a definition that came and shows it.
func (o *owner) pulled(req pullRequest, definition []byte, err error, now time.Time) {
	result := "ok"
	switch {
	case errors.Is(err, errNotThere):
		result = "not-there"
	case err != nil:
		result = "failed"
		o.m.log.Debug("definition not pulled", "hash", fmt.Sprintf("%x", req.hash), "from", req.to, "error", err)
	}
	fresh := o.defs.done(req.hash, definition, now)
	if err == nil && !fresh {
		result = "no-room"
		o.m.log.Warn("a definition was not kept", "error", o.noRoom(req.hash))
	}
	o.m.metrics.pulls.WithLabelValues(result).Inc()
	if fresh {
		o.arrived(req, now)
	}
}

func (o *owner) noRoom(h wire.Hash) error {
	return fmt.Errorf("%w: no room for definition %x: all definitions together may have %d bytes, register fewer instances", ErrRecord, h, definitionBudget)
}

// fetch asks one member for one definition.
func (m *Membership) fetch(req pullRequest) ([]byte, error) {
	ctx, cancel := context.WithTimeout(m.ctx, m.cfg.Swim.StreamTimeout)
	defer cancel()
	var ask []byte
	var mute error
	err := m.call(func(o *owner, _ time.Time) {
		if mute = o.mute(); mute == nil {
			ask = wire.AppendPull(m.begin(o), req.hash)
		}
	})
	if err = errors.Join(err, mute); err != nil {
		return nil, err
	}
	conn, err := m.transport.DialStream(ctx, req.to)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := m.transmit(conn, [][]byte{m.codec.Seal(ask)}); err != nil {
		return nil, err
	}
	return m.collect(conn, req.hash)
}

// collect puts the parts of a definition together and checks their hash.
func (m *Membership) collect(conn net.Conn, hash wire.Hash) ([]byte, error) {
	var definition []byte
	buf := make([]byte, 0, streamBuffer)
	for range maxFrames {
		var err error
		buf, err = m.receive(conn, buf)
		if errors.Is(err, io.EOF) && len(definition) == 0 {
			return nil, errNotThere
		}
		if err != nil {
			return nil, err
		}
		part, err := m.partOf(buf, hash)
		if err == nil && (int(part.Offset) != len(definition) || len(definition)+len(part.Payload) > int(part.Total)) {
			err = fmt.Errorf("%w: part at %d of %d after %d bytes", wire.ErrMalformed, part.Offset, part.Total, len(definition))
		}
		if err != nil {
			m.metrics.reject(err)
			return nil, err
		}
		definition = append(definition, part.Payload...)
		if len(definition) < int(part.Total) {
			continue
		}
		if wire.HashOf(definition) != hash {
			m.metrics.reject(wire.ErrChecksum)
			return nil, fmt.Errorf("%w: the definition pulled has another hash", wire.ErrChecksum)
		}
		return definition, nil
	}
	m.metrics.reject(errTooManyFrames)
	return nil, errTooManyFrames
}

// partOf reads a frame that must hold a non-empty part of one definition.
func (m *Membership) partOf(frame []byte, hash wire.Hash) (wire.Message, error) {
	p, err := m.codec.Open(frame)
	if err != nil {
		return wire.Message{}, err
	}
	var msg wire.Message
	r := p.Reader()
	for r.Next(&msg) {
		if msg.Type == wire.Part && msg.Hash == hash && len(msg.Payload) > 0 && msg.Total <= wire.MaxDefinition {
			return msg, nil
		}
	}
	return wire.Message{}, fmt.Errorf("%w: a frame without a part of the definition asked for", wire.ErrMalformed)
}

// servePull answers a pull; closing without a frame says "not here".
func (m *Membership) servePull(conn net.Conn, p wire.Packet) error {
	var msg wire.Message
	r := p.Reader()
	if !r.Next(&msg) {
		return nil
	}
	var definition, head []byte
	var mute error
	err := m.call(func(o *owner, _ time.Time) {
		if mute = o.mute(); mute == nil {
			definition, head = o.defs.get(msg.Hash), m.begin(o)
		}
	})
	if err = errors.Join(err, mute); err != nil {
		return err
	}
	for offset := 0; offset < len(definition); offset += wire.MaxPartBytes {
		part := definition[offset:min(offset+wire.MaxPartBytes, len(definition))]
		frame := append(make([]byte, 0, len(head)+len(part)+64), head...)
		frame = wire.AppendPart(frame, msg.Hash, uint32(len(definition)), uint32(offset), part)
		if err := m.transmit(conn, [][]byte{m.codec.Seal(frame)}); err != nil {
			return err
		}
	}
	return nil
}

// begin starts a packet of this node.
func (m *Membership) begin(o *owner) []byte {
	id, epoch, incarnation := o.node.Header()
	return m.codec.Begin(nil, id, epoch, incarnation)
}

// mute reports why nothing may be said.
func (o *owner) mute() error {
	if o.unwritten != 0 || o.node.Silent() {
		return errMute
	}
	return nil
}
