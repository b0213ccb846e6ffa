package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/kvtext"
)

func (k *kv) getCommand() *cobra.Command {
	var get kvtext.Get
	cmd := &cobra.Command{
		Use:   "get KEY [RANGE_END]",
		Short: "Print the value of a key, or keys and values of a range",
		Long: `Print the value of a key and a newline; a key that is not there is exit code 1.

With --prefix, --from-key or RANGE_END, which is not part of the range, print each
key and, on the next line, its value, in the order of keys; that there is none is
no error. Values are printed as they are, but on a terminal quoted if they would
steer it: what may hold newlines or no text is read best with -o json.`,
		Example: `  fairlead kv get config/colour
  fairlead kv get config/ --prefix --keys-only
  fairlead kv get a b                  # from a up to b, without b
  fairlead kv get "" --prefix --count  # of all keys
  fairlead kv get config/colour -o json | jq -r '.kvs[0].value | @base64d'`,
		Args:              cobra.ArbitraryArgs, // Request says what is wrong with them
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := get.Request(args)
			if err != nil {
				return usagef(cmd, "%w", err)
			}
			return k.ask(cmd, func(ctx context.Context, conn grpc.ClientConnInterface) error {
				found, err := pb.NewKVClient(conn).Range(ctx, r, large())
				if err != nil {
					return err
				}
				return k.printGet(r, found)
			})
		},
	}
	get.Flags(cmd.Flags())
	complete(cmd, "sort-by", kvtext.SortTargets()...)
	return cmd
}

func (k *kv) printGet(r *pb.RangeRequest, found *pb.RangeResponse) error {
	missing := !kvtext.IsRange(r) && !r.GetCountOnly() && len(found.GetKvs()) == 0
	var err error
	switch {
	case k.output == "json":
		err = printed(printJSON(k.env.Stdout, toRangeJSON(found)))
	case r.GetCountOnly():
		err = k.print("%d\n", found.GetCount())
	case !kvtext.IsRange(r) && !r.GetKeysOnly() && !missing:
		err = k.print("%s\n", k.shown(found.GetKvs()[0].GetValue()))
	default:
		err = k.printPairs(found.GetKvs(), r.GetKeysOnly())
	}
	if err == nil && missing {
		return saidError{fmt.Errorf("there is no key %s", inLine(r.GetKey()))}
	}
	return err
}

func (k *kv) delCommand() *cobra.Command {
	var del kvtext.Del
	cmd := &cobra.Command{
		Use:   "del KEY",
		Short: "Delete a key or a range of keys, and print how many",
		Long: `Delete a key and print how many keys were deleted: that there was none is no error.
With --prefix, --from-key or --range-end delete all keys of a range at once.
With --prev-kv print each key and its value after the number.`,
		Example: `  fairlead kv del config/colour
  fairlead kv del config/ --prefix
  fairlead kv del "" --from-key         # all there are, but not those of --system`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				return usagef(cmd, "%s takes one KEY, got %q, too: a range is --range-end", cmd.CommandPath(), args[1])
			}
			return exactly("KEY")(cmd, args)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := del.Request(args[0])
			if err != nil {
				return usagef(cmd, "%w", err)
			}
			return k.ask(cmd, func(ctx context.Context, conn grpc.ClientConnInterface) error {
				done, err := pb.NewKVClient(conn).DeleteRange(ctx, r, large())
				if err != nil {
					return err
				}
				if k.output == "json" {
					return printed(printJSON(k.env.Stdout, toDelJSON(done)))
				}
				if err := k.print("%d\n", done.GetDeleted()); err != nil {
					return err
				}
				return k.printPairs(done.GetPrevKvs(), false)
			})
		},
	}
	del.Flags(cmd.Flags())
	return cmd
}
