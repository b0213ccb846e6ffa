package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/kvtext"
)

func (k *kv) txnCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "txn",
		Short: "Compare keys and do one thing or another, in one step",
		Long: `Read a transaction from standard input, or a file, and carry it out in one step:
compares, an empty line, what to do if all of them hold, an empty line, and what to
do if not. Each part may be empty. The form is that of etcdctl.

    value("config/colour") = "blue"
    mod("config/size") > "3"

    put config/colour green
    get config/ --prefix

    get config/colour

A compare is of version, create or mod (revisions), value, or lease (hexadecimal); it
is =, !=, < or >. Operations are get, put and del with the flags of the commands;
words with blanks stand in quotes.

It prints SUCCESS if the compares held, and FAILURE if not, which is exit code 0 as
well; then the result of each operation after an empty line.`,
		Example: `  fairlead kv txn < swap.txt
  printf 'version("a") = "0"\n\nput a 1\n\nget a\n' | fairlead kv txn -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := k.txnText(file)
			if err != nil {
				return err
			}
			r, err := kvtext.ParseTxn(text)
			if err != nil {
				return fmt.Errorf("the transaction: %w", err)
			}
			return k.ask(cmd, func(ctx context.Context, conn grpc.ClientConnInterface) error {
				done, err := pb.NewKVClient(conn).Txn(ctx, r, large())
				if err != nil {
					return err
				}
				if k.output == "json" {
					return printed(printJSON(k.env.Stdout, toTxnJSON(done)))
				}
				return k.printTxn(r, done)
			})
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "-", "read the transaction from this `FILE`; - is standard input")
	return cmd
}

func (k *kv) txnText(file string) ([]byte, error) {
	if file == "-" {
		return readInput(k.env.Stdin, "standard input")
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readInput(f, file)
}

func (k *kv) printTxn(r *pb.TxnRequest, done *pb.TxnResponse) error {
	word, asked := "SUCCESS", r.GetSuccess()
	if !done.GetSucceeded() {
		word, asked = "FAILURE", r.GetFailure()
	}
	if err := k.print("%s\n", word); err != nil {
		return err
	}
	for i, o := range done.GetResponses() {
		if i == len(asked) {
			break // an answer to nothing
		}
		if err := k.print("\n"); err != nil {
			return err
		}
		if err := k.printOp(asked[i], o); err != nil {
			return err
		}
	}
	return nil
}

// printOp prints the result of an operation: keys and values always both, so that
// they are told from each other.
func (k *kv) printOp(asked *pb.RequestOp, o *pb.ResponseOp) error {
	switch {
	case o.GetResponsePut() != nil:
		return k.printOK(o.GetResponsePut().GetPrevKv())
	case o.GetResponseDeleteRange() != nil:
		d := o.GetResponseDeleteRange()
		if err := k.print("%d\n", d.GetDeleted()); err != nil {
			return err
		}
		return k.printPairs(d.GetPrevKvs(), false)
	}
	get, found := asked.GetRequestRange(), o.GetResponseRange()
	if get.GetCountOnly() {
		return k.print("%d\n", found.GetCount())
	}
	return k.printPairs(found.GetKvs(), get.GetKeysOnly())
}
