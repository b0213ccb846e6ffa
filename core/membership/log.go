package membership

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/fairlead/fairlead/core/swim"
)

// logEvent writes one line per transition. State records change with every
// health check and are for debugging only.
func (m *Membership) logEvent(e swim.Event) {
	level := slog.LevelInfo
	switch e.Kind {
	case swim.EventRecord:
		level = slog.LevelDebug
	case swim.EventEpochJumped:
		level = slog.LevelWarn
	case swim.EventNameConflict, swim.EventAddressConflict, swim.EventCloned:
		level = slog.LevelError
	}
	if !m.log.Enabled(context.Background(), level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("kind", e.Kind.String()), slog.String("member", e.Member.Name), slog.String("id", e.Member.ID.String()), slog.String("addr", e.Member.Addr.String()),
		slog.String("value", e.Member.Value.String()), slog.String("was", e.Was.String()),
	}
	if e.From.IsValid() {
		attrs = append(attrs, slog.String("from", e.From.String()))
	}
	if e.Detail != "" {
		attrs = append(attrs, slog.String("detail", e.Detail))
	}
	m.log.LogAttrs(context.Background(), level, "member changed", attrs...)
}

// arrived makes events of a definition or a vector that was pulled, so that readers of
// events miss nothing that snapshots show.
func (o *owner) arrived(req pullRequest, now time.Time) {
	o.dirty = true
	for _, member := range o.node.Members() {
		if p, _ := splitRecord(member.Record); p.refers(req.hash) {
			o.pending = append(o.pending, swim.Event{
				Kind: swim.EventRecord, Member: member, Was: member.Value, From: req.to, At: now,
				Detail: fmt.Sprintf("%x pulled", req.hash),
			})
		}
	}
}
