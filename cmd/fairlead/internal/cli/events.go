package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/core/model"
)

// eventJSON is one line of `events -o json`. Scripts rely on it: keys are
// added at the end and never renamed.
type eventJSON struct {
	Seq        uint64       `json:"seq"`
	Time       *time.Time   `json:"time,omitempty"`
	Transition string       `json:"transition"`
	Node       string       `json:"node,omitempty"`
	ID         string       `json:"id,omitempty"`
	Addr       string       `json:"addr,omitempty"`
	Was        *valueJSON   `json:"was,omitempty"`
	Now        *valueJSON   `json:"now,omitempty"`
	From       string       `json:"from,omitempty"`
	Detail     string       `json:"detail,omitempty"`
	Members    []memberJSON `json:"members,omitempty"`
}

type valueJSON struct {
	State       model.State `json:"state"`
	Epoch       uint64      `json:"epoch"`
	Incarnation uint64      `json:"incarnation"`
}

// resync is the transition shown where events were missed.
const resync = "resync"

func (a *app) eventsCommand() *cobra.Command {
	var follow bool
	var since string
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show the time line of transitions",
		Long: `Show the transitions that one agent saw since it started: members that joined,
were suspected, refuted, died, left or came back; "record" is a member that says
something else of itself, such as of its services and their health. It keeps 4096
at most, the newest; where older ones are missing, one line "resync" says so. With
-o json each event is one line with one object.

A state is EPOCH.INCARNATION and a word: the epoch counts the starts of the
member's agent, the incarnation the states that it claimed since then.`,
		Example: `  fairlead events --follow
  fairlead events --since 5m -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := a.parseSince(since)
			if err != nil {
				return usagef(cmd, "%w", err)
			}
			ctx, cancel := a.signalled(cmd.Context())
			defer cancel()
			if !follow {
				var stop context.CancelFunc
				ctx, stop = context.WithTimeout(ctx, callTimeout)
				defer stop()
			}
			c, err := a.connect(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			err = a.printEvents(ctx, c, 0, follow, from)
			if follow && ctx.Err() != nil {
				return nil // Ctrl-C is how one ends a follower
			}
			return err
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with new transitions until interrupted")
	cmd.Flags().StringVar(&since, "since", "", "show only transitions since this `TIME`: a duration (5m) or a date (2026-01-31T12:00:00Z)")
	return cmd
}

func (a *app) parseSince(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		return a.env.Now().Add(-d.Abs()), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("--since is %q: want a duration such as 5m, or a date such as 2026-01-31T12:00:00Z", text)
	}
	return t, nil
}

// printEvents prints what follows event after, as it comes.
func (a *app) printEvents(ctx context.Context, c *client.Client, after uint64, follow bool, since time.Time) error {
	// Addresses that told of something are shown by name. Without the list
	// they are shown as they are.
	members, _ := c.Members(ctx)
	line := eventLine{names: make(map[string]string), nameWidth: len("-")}
	for _, m := range members {
		line.names[m.Addr] = m.Name
		line.nameWidth = max(line.nameWidth, utf8.RuneCountInString(printable(m.Name)))
	}
	for e, err := range c.Events(ctx, after, follow) {
		if err != nil {
			return err
		}
		if e.Member.Addr != "" {
			line.names[e.Member.Addr] = e.Member.Name
		}
		if !e.Resync && e.At.Before(since) {
			continue
		}
		if err := a.printEvent(e, line); err != nil {
			return fmt.Errorf("write an event: %w", err)
		}
	}
	return nil
}

// eventLine is what the text form needs to know beside the event.
type eventLine struct {
	names     map[string]string // by address
	nameWidth int               // of the column
}

func (a *app) printEvent(e client.Event, line eventLine) error {
	if a.output == "json" {
		return printJSON(a.env.Stdout, toEventJSON(e))
	}
	if e.Resync {
		_, err := fmt.Fprintf(a.env.Stdout, "%s  %-*s  %-*s  earlier transitions are no longer kept; %d members now\n",
			clock(a.env, a.env.Now(), eventTime), line.nameWidth, "-", transitionWidth, resync, len(e.Members))
		return err
	}
	transition := paint(a.env.colour(), stateColour(e.Member.State), fmt.Sprintf("%-*s", transitionWidth, e.Kind))
	detail := eventDetail(e, line.names)
	if until := e.Member.HeldUntil; !until.IsZero() {
		detail += ", back by " + clock(a.env, until, time.TimeOnly)
	}
	_, err := fmt.Fprintf(a.env.Stdout, "%s  %-*s  %s  %s\n",
		clock(a.env, e.At, eventTime), line.nameWidth, printable(e.Member.Name), transition, detail)
	return err
}

// transitionWidth has room for the longest, address-conflict.
const transitionWidth = 16

// eventTime has a fixed width and milliseconds, which failure detection is
// measured in.
const eventTime = "2006-01-02 15:04:05.000"

// eventDetail says in words what changed and who told.
func eventDetail(e client.Event, names map[string]string) string {
	var parts []string
	now := model.Value{Epoch: e.Member.Epoch, Incarnation: e.Member.Incarnation, State: e.Member.State}
	switch {
	case e.Was == (model.Value{}), e.Was == now:
		parts = append(parts, now.String())
	default:
		parts = append(parts, fmt.Sprintf("%v → %v", e.Was, now))
	}
	parts = append(parts, "at "+e.Member.Addr)
	if e.From != "" {
		parts = append(parts, "told by "+printable(cmp.Or(names[e.From], e.From)))
	}
	if e.Detail != "" {
		parts = append(parts, printable(e.Detail))
	}
	return strings.Join(parts, ", ")
}

func toEventJSON(e client.Event) eventJSON {
	if e.Resync {
		return eventJSON{Seq: e.Seq, Transition: resync, Members: membersJSON(e.Members)}
	}
	out := eventJSON{
		Seq:        e.Seq,
		Time:       &e.At,
		Transition: e.Kind,
		Node:       e.Member.Name,
		ID:         e.Member.ID.String(),
		Addr:       e.Member.Addr,
		Now:        &valueJSON{e.Member.State, e.Member.Epoch, e.Member.Incarnation},
		From:       e.From,
		Detail:     e.Detail,
	}
	if e.Was != (model.Value{}) {
		out.Was = &valueJSON{e.Was.State, e.Was.Epoch, e.Was.Incarnation}
	}
	return out
}
