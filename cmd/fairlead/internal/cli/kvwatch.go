package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/kvtext"
	"github.com/fairlead/fairlead/core/api/client"
)

// watchJSON is one line of `kv watch -o json`. Scripts rely on it: keys are added at
// the end and never renamed.
type watchJSON struct {
	Type string        `json:"type"` // PUT, DELETE
	KV   *keyValueJSON `json:"kv"`
	Prev *keyValueJSON `json:"prev_kv,omitempty"`
}

// watching is a watch: what it is of, and how far it is.
type watching struct {
	kvtext.Span
	prev  bool
	count uint // end after so many; 0: do not end

	next    int64  // revision that comes next; 0: whatever is next
	cluster uint64 // whose history it is; 0: it did not begin yet
	shown   uint
}

func (k *kv) watchCommand() *cobra.Command {
	var w watching
	cmd := &cobra.Command{
		Use:   "watch KEY [RANGE_END]",
		Short: "Show each write to a key or a range, as it comes",
		Long: `Show each write to a key or a range, as it comes: the revision, PUT or DELETE, the
key and the value; with --rev also those since that revision. It ends with Ctrl-C,
or after --count writes.

A connection that is lost is made again, and what was written meanwhile is shown,
nothing twice. If the history in between is compacted, which is then said, it ends
with exit code 1: read the keys anew.

With -o json each write is one object on a line, key and value in base64.`,
		Example: `  fairlead kv watch config/ --prefix
  fairlead kv watch config/colour --rev 1 -o json`,
		Args:              cobra.ArbitraryArgs, // checked below
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				w.End = args[1]
			}
			if len(args) == 0 || len(args) > 2 || len(args) == 2 && w.End == "" {
				return usagef(cmd, "watch wants KEY [RANGE_END]")
			}
			from, end, err := w.Keys(args[0])
			if err != nil {
				return usagef(cmd, "%w", err)
			}
			if w.next < 0 {
				return usagef(cmd, "--rev is %d: want 0 or more", w.next)
			}
			ctx, cancel := k.signalled(cmd.Context())
			defer cancel()
			err = k.watch(ctx, &w, &pb.WatchCreateRequest{Key: from, RangeEnd: end, PrevKv: w.prev, ProgressNotify: true})
			if ctx.Err() != nil {
				return nil // Ctrl-C is how one ends it
			}
			return err
		},
	}
	flags := cmd.Flags()
	w.Span.Flags(flags)
	flags.BoolVar(&w.prev, "prev-kv", false, "show what was there before, too")
	flags.Int64Var(&w.next, "rev", 0, "begin with what was written in revision `N`; 0: from now on")
	flags.UintVarP(&w.count, "count", "n", 0, "end after `N` writes; 0: do not end")
	return cmd
}

const (
	// Between tries to reach an agent again.
	firstPause = 100 * time.Millisecond
	maxPause   = 2 * time.Second
)

// watch follows, and connects again when the connection is lost.
func (k *kv) watch(ctx context.Context, w *watching, r *pb.WatchCreateRequest) error {
	c, err := k.connect(ctx)
	if err != nil {
		return err
	}
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		began, err := k.follow(k.about(ctx), c, w, r)
		_ = c.Close()
		if err == nil || !w.begun() || !lost(err) {
			return inWords(c, "fairlead kv watch", err)
		}
		if ctx.Err() != nil {
			return nil // its user ended it
		}
		if began {
			pause = firstPause
			fmt.Fprintf(k.env.Stderr, "fairlead: the watch was cut off, trying again from revision %d: %v\n", w.next, inWords(c, "fairlead kv watch", err))
		}
		if c, err = redial(ctx, c, pause); err != nil {
			return err
		}
	}
}

// redial tries until an agent answers.
func redial(ctx context.Context, lost *client.Client, pause time.Duration) (*client.Client, error) {
	for ; ; pause = min(2*pause, maxPause) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
		c, err := lost.Redial(ctx)
		if err == nil || !errors.Is(err, client.ErrNoAgent) {
			return c, err
		}
	}
}

// lost reports whether a watch may go on over another connection.
func lost(err error) bool {
	if errors.Is(err, io.EOF) {
		return true // the other side stopped in order
	}
	s, is := status.FromError(err)
	return is && (s.Code() == codes.Unavailable || s.Code() == codes.Canceled)
}

// follow watches over one connection. It returns nil when all was shown that was
// wanted, and whether the watch began.
func (k *kv) follow(ctx context.Context, c *client.Client, w *watching, r *pb.WatchCreateRequest) (began bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewWatchClient(c.Conn()).Watch(ctx, large())
	if err != nil {
		return false, err
	}
	r.StartRevision = w.next
	// An error of Send is the stream's end, whose reason Recv tells.
	_ = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}})
	for {
		answer, err := stream.Recv()
		if err != nil {
			return began, err
		}
		began = true
		if err := w.take(answer); err != nil {
			return began, err
		}
		for _, e := range answer.GetEvents() {
			if err := k.printWrite(w, e); err != nil {
				return began, err
			}
			w.shown++
			if w.shown == w.count {
				return began, nil
			}
		}
	}
}

func (w *watching) begun() bool { return w.cluster != 0 }

// take notes how far an answer leads, and refuses one that ends the watch.
func (w *watching) take(r *pb.WatchResponse) error {
	h := r.GetHeader()
	switch {
	case w.begun() && h.GetClusterId() != w.cluster:
		return saidError{fmt.Errorf("another store answers than the one that was watched up to revision %d: read the keys anew", w.next-1)}
	case r.GetCompactRevision() > 0:
		return saidError{fmt.Errorf("revision %d is compacted, the history begins at %d: what was written in between cannot be shown, read the keys anew", w.next, r.GetCompactRevision())}
	case r.GetCanceled():
		return saidError{fmt.Errorf("the watch was ended: %s", r.GetCancelReason())}
	}
	w.cluster = h.GetClusterId()
	switch n := len(r.GetEvents()); {
	case n > 0:
		// Invariant: no revision is cut, as no fragments were asked for.
		w.next = r.GetEvents()[n-1].GetKv().GetModRevision() + 1
	case w.next == 0 || !r.GetCreated():
		w.next = max(w.next, h.GetRevision()+1)
	}
	return nil
}

func (k *kv) printWrite(w *watching, e *mvccpb.Event) error {
	if k.output == "json" {
		return printed(printJSON(k.env.Stdout, watchJSON{e.GetType().String(), toKeyValueJSON(e.GetKv()), toKeyValueJSON(e.GetPrevKv())}))
	}
	kv := e.GetKv()
	line := fmt.Sprintf("%-6d  %-6s  %s", kv.GetModRevision(), e.GetType(), inLine(kv.GetKey()))
	if e.GetType() == mvccpb.PUT {
		line += "  " + inLine(kv.GetValue())
	}
	if prev := e.GetPrevKv(); w.prev && prev != nil {
		line += "  (was " + inLine(prev.GetValue()) + ")"
	}
	return k.print("%s\n", line)
}
