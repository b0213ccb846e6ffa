package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/core/api/etcd"
	"github.com/fairlead/fairlead/core/store"
)

// kv are the commands on keys.
type kv struct {
	*app
	system bool // --system
}

func (a *app) kvCommand() *cobra.Command {
	k := &kv{app: a}
	cmd := &cobra.Command{
		Use:   "kv",
		Short: "Read and write the keys of the store",
		Long: `Read and write the keys of the store that the servers of the cluster agree on.

Any agent answers: it asks the servers if it is none. What is read is what was
written last, unless you say --serializable. etcdctl and every client of etcd v3
can do the same at the agent's api.listen (--endpoints 127.0.0.1:7402).

There are two sets of keys. Yours is the one that all commands are about; --system
is about the other, where the cluster keeps its own state. That is answered on the
agent's Unix socket only, and nothing in it is meant to be written by hand.

With -o json keys and values are in base64, as those of etcdctl -w json are, and
whole numbers are numbers.`,
	}
	group(cmd)
	cmd.PersistentFlags().BoolVar(&k.system, "system", false, "the keys of the cluster itself, on the agent's socket only")
	cmd.AddCommand(
		k.getCommand(),
		k.putCommand(),
		k.delCommand(),
		k.watchCommand(),
		k.txnCommand(),
		k.leaseCommand(),
		k.compactCommand(),
		k.alarmCommand(),
	)
	return cmd
}

// about marks the calls of a context with the set of keys that --system chooses.
func (k *kv) about(ctx context.Context) context.Context {
	if !k.system {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, etcd.KeyspaceKey, store.System.String())
}

// ask connects and calls f with a bounded context. The error of f is that of a call,
// and comes back in words.
func (k *kv) ask(cmd *cobra.Command, f func(context.Context, grpc.ClientConnInterface) error) error {
	return k.call(cmd.Context(), func(ctx context.Context, c *client.Client) error {
		return inWords(c, cmd.CommandPath(), f(k.about(ctx), c.Conn()))
	})
}

// large lifts the limit on an answer: whoever asks for all keys wants them.
func large() grpc.CallOption { return grpc.MaxCallRecvMsgSize(math.MaxInt32) }

// saidError is one that needs no more words: it is no error of a call.
type saidError struct{ error }

// inWords says what an error of the store means, and what to do.
func inWords(c *client.Client, call string, err error) error {
	var said saidError
	if err == nil || errors.As(err, &said) {
		return err
	}
	call = call[len("fairlead "):]
	late := "the servers gave no answer in time, so it is not known whether this was done: read before you try again; see `fairlead raft status`"
	if call == "kv get" {
		late = "the servers gave no answer in time: most of the servers have to run and to reach each other, see `fairlead raft status`; with --serializable the asked one answers by itself"
	}
	for _, known := range []struct {
		err   error
		words string
	}{
		{rpctypes.ErrGRPCCompacted, "the revision is compacted, its history is gone: ask for a newer one"},
		{rpctypes.ErrGRPCFutureRev, "the revision is still to come"},
		{rpctypes.ErrGRPCLeaseNotFound, "the lease is not there: it ended, or never was"},
		{rpctypes.ErrGRPCLeaseExist, "a lease of that id is there already"},
		{rpctypes.ErrGRPCLeaseTTLTooLarge, "the time of the lease is too long: 9,000,000,000 s at most"},
		{rpctypes.ErrGRPCRequestTooLarge, "the request is larger than 1.5 MiB, which is the most"},
		{rpctypes.ErrGRPCTooManyOps, "a transaction has 128 operations at most in each part"},
		{rpctypes.ErrGRPCDuplicateKey, "the transaction writes a key twice"},
		{rpctypes.ErrGRPCNoSpace, "the store is full, so nothing is written: delete keys, `fairlead kv compact` what was before, then `fairlead kv alarm disarm`; `fairlead raft status` tells whether a disk is full"},
		{rpctypes.ErrGRPCNoLeader, "the servers have no leader now: most of them have to run and to reach each other; see `fairlead raft status`"},
		{rpctypes.ErrGRPCTimeout, late},
	} {
		if rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(known.err) {
			return fmt.Errorf("%s: %s", call, known.words)
		}
	}
	if etcd.NotDone(err) {
		return fmt.Errorf("%s: %s", call, rpctypes.ErrorDesc(err)) // nobody is there to ask, and why
	}
	if status.Code(err) == codes.DeadlineExceeded { // by this command's own clock: the agent still waits for the servers
		return fmt.Errorf("%s: %s: %w", call, late, context.DeadlineExceeded)
	}
	return c.Explain(call, err)
}

func (k *kv) compactCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "compact REVISION",
		Short: "Forget the history before a revision",
		Long: `Forget the history before a revision: what keys held before then can no longer be
read or watched, and the room is free. What they hold at that revision and since
stays.`,
		Args:              exactly("REVISION"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			revision, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil || revision < 1 {
				return usagef(cmd, "REVISION is %q: want a whole number from 1 on", args[0])
			}
			return k.ask(cmd, func(ctx context.Context, conn grpc.ClientConnInterface) error {
				r, err := pb.NewKVClient(conn).Compact(ctx, &pb.CompactionRequest{Revision: revision})
				if err != nil {
					return err
				}
				if k.output == "json" {
					return printed(printJSON(k.env.Stdout, struct {
						Header    headerJSON `json:"header"`
						Compacted int64      `json:"compacted"`
					}{toHeaderJSON(r.GetHeader()), revision}))
				}
				return k.print("compacted revision %d\n", revision)
			})
		},
	}
}

func (k *kv) alarmCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "alarm",
		Short: "Show or end the alarm of a store that is full",
		Long: `A set of keys that is full raises an alarm, and refuses whatever would add to it
until the alarm is ended here. Delete keys and compact first.`,
	}
	group(cmd)
	for _, verb := range []struct {
		use, short string
		action     pb.AlarmRequest_AlarmAction
	}{
		{"list", "List the alarms", pb.AlarmRequest_GET},
		{"disarm", "End the alarms, and list them", pb.AlarmRequest_DEACTIVATE},
	} {
		cmd.AddCommand(&cobra.Command{
			Use: verb.use, Short: verb.short, Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return k.alarm(cmd, verb.action) },
		})
	}
	return cmd
}

// alarmJSON is one entry of `kv alarm list -o json`.
type alarmJSON struct {
	MemberID uint64 `json:"member_id"`
	Alarm    string `json:"alarm"`
}

func (k *kv) alarm(cmd *cobra.Command, action pb.AlarmRequest_AlarmAction) error {
	return k.ask(cmd, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		r, err := pb.NewMaintenanceClient(conn).Alarm(ctx, &pb.AlarmRequest{Action: action})
		if err != nil {
			return err
		}
		out := make([]alarmJSON, len(r.GetAlarms()))
		rows := [][]cell{cells("SERVER", "ALARM")}
		for i, m := range r.GetAlarms() {
			out[i] = alarmJSON{m.GetMemberID(), m.GetAlarm().String()}
			rows = append(rows, cells(strconv.FormatUint(m.GetMemberID(), 16), out[i].Alarm))
		}
		if k.output == "json" {
			return printed(printJSON(k.env.Stdout, out))
		}
		if len(out) == 0 {
			return k.print("there is no alarm\n")
		}
		return printed(table(k.env.Stdout, k.env.colour(), rows))
	})
}

// exactly wants these arguments, no more and no fewer.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usagef(cmd, "%s wants %s", cmd.CommandPath(), names[len(args)])
		case len(args) > len(names):
			return usagef(cmd, "%s takes no argument after %s, got %q", cmd.CommandPath(), cmp.Or(names[len(names)-1], "it"), args[len(names)])
		}
		return nil
	}
}
