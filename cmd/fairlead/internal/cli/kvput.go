package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/kvtext"
)

// maxInput is more than any request may have: what is longer is refused unread.
const maxInput = 3 << 19 // 1.5 MiB

// putting is what the flags of put say.
type putting struct {
	kvtext.Put
	absent            bool
	version, revision int64
}

func (k *kv) putCommand() *cobra.Command {
	var p putting
	cmd := &cobra.Command{
		Use:   "put KEY [VALUE]",
		Short: "Write the value of a key",
		Long: `Write the value of a key. Without VALUE, or with -, it is all of standard input,
bytes of any kind. A value that begins with a dash comes after --.

With --if-absent, --if-version or --if-rev the value is written only if the key is
as you say, in one step; otherwise nothing is written, and the exit code is 1. The
version counts the writes of a key since it came into being, from 1 on, and the
revision is the "mod_revision" of get -o json; 0 of either is a key that is not
there.`,
		Example: `  fairlead kv put config/colour blue
  fairlead kv put config/logo < logo.png
  fairlead kv put locks/job "$HOSTNAME" --if-absent --lease 694d81417acd4754
  fairlead kv put -- config/offset -5`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				return nil
			}
			return exactly("KEY")(cmd, args)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			condition, err := p.condition(cmd, args[0])
			if err != nil {
				return err
			}
			value, err := k.value(args[1:])
			if err != nil {
				return err
			}
			r, err := p.Request(args[0], value)
			if err != nil {
				return usagef(cmd, "%w", err)
			}
			return k.ask(cmd, func(ctx context.Context, conn grpc.ClientConnInterface) error {
				return k.put(ctx, pb.NewKVClient(conn), r, condition)
			})
		},
	}
	flags := cmd.Flags()
	p.Put.Flags(flags)
	flags.BoolVar(&p.absent, "if-absent", false, "write only if the key is not there")
	flags.Int64Var(&p.version, "if-version", 0, "write only if the key is at version `N`")
	flags.Int64Var(&p.revision, "if-rev", 0, "write only if the key was last written in revision `N`")
	return cmd
}

// condition is what has to hold, nil if nothing has to.
func (p *putting) condition(cmd *cobra.Command, key string) (*pb.Compare, error) {
	c := &pb.Compare{Key: []byte(key), Result: pb.Compare_EQUAL}
	given := 0
	if p.absent {
		given++
		c.Target, c.TargetUnion = pb.Compare_VERSION, &pb.Compare_Version{}
	}
	if cmd.Flags().Changed("if-version") {
		given++
		c.Target, c.TargetUnion = pb.Compare_VERSION, &pb.Compare_Version{Version: p.version}
	}
	if cmd.Flags().Changed("if-rev") {
		given++
		c.Target, c.TargetUnion = pb.Compare_MOD, &pb.Compare_ModRevision{ModRevision: p.revision}
	}
	switch {
	case given > 1:
		return nil, usagef(cmd, "give one of --if-absent, --if-version and --if-rev")
	case p.version < 0:
		return nil, usagef(cmd, "--if-version is %d: want 0 or more", p.version)
	case p.revision < 0:
		return nil, usagef(cmd, "--if-rev is %d: want 0 or more", p.revision)
	case given == 0:
		return nil, nil
	}
	return c, nil
}

// value is the argument, or standard input.
func (k *kv) value(args []string) ([]byte, error) {
	if len(args) == 1 && args[0] != "-" {
		return []byte(args[0]), nil
	}
	return readInput(k.env.Stdin, "standard input")
}

// readInput reads all of what a request is made of.
func readInput(from io.Reader, name string) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(from, maxInput+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", name, err)
	case len(b) > maxInput:
		return nil, fmt.Errorf("%s has more than 1.5 MiB, which is the most of a request", name)
	}
	return b, nil
}

// put writes, if the condition holds.
func (k *kv) put(ctx context.Context, client pb.KVClient, r *pb.PutRequest, condition *pb.Compare) error {
	if condition == nil {
		done, err := client.Put(ctx, r, large())
		if err != nil {
			return err
		}
		return k.printPut(putJSON{Header: toHeaderJSON(done.GetHeader()), Written: true, Prev: toKeyValueJSON(done.GetPrevKv())}, done.GetPrevKv())
	}
	done, err := client.Txn(ctx, &pb.TxnRequest{
		Compare: []*pb.Compare{condition},
		Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: r}}},
		Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: r.GetKey()}}}},
	}, large())
	if err != nil {
		return err
	}
	if len(done.GetResponses()) != 1 {
		return errors.New("the answer has not one result, as was asked for")
	}
	first := done.GetResponses()[0]
	if done.GetSucceeded() {
		prev := first.GetResponsePut().GetPrevKv()
		return k.printPut(putJSON{Header: toHeaderJSON(done.GetHeader()), Written: true, Prev: toKeyValueJSON(prev)}, prev)
	}
	var found *mvccpb.KeyValue
	why := "there is no key " + inLine(r.GetKey())
	if kvs := first.GetResponseRange().GetKvs(); len(kvs) > 0 {
		found = kvs[0]
		why = fmt.Sprintf("the key %s is at version %d, written in revision %d", inLine(r.GetKey()), found.GetVersion(), found.GetModRevision())
	}
	if k.output == "json" {
		if err := printJSON(k.env.Stdout, putJSON{Header: toHeaderJSON(done.GetHeader()), Found: toKeyValueJSON(found)}); err != nil {
			return printed(err)
		}
	}
	return saidError{fmt.Errorf("not written: %s", why)}
}

func (k *kv) printPut(out putJSON, prev *mvccpb.KeyValue) error {
	if k.output == "json" {
		return printed(printJSON(k.env.Stdout, out))
	}
	return k.printOK(prev)
}

// printOK says that a key was written, and what was there if that was asked for.
func (k *kv) printOK(prev *mvccpb.KeyValue) error {
	if err := k.print("OK\n"); err != nil || prev == nil {
		return err
	}
	return k.printPairs([]*mvccpb.KeyValue{prev}, false)
}
