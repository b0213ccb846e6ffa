package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/core/store"
)

// backupJSON is the answer of `snapshot save` and `inspect -o json`. Scripts rely on
// it: keys are added at the end and never renamed.
type backupJSON struct {
	File      string               `json:"file"`
	Bytes     int                  `json:"bytes"`
	SHA256    string               `json:"sha256"` // of the file
	Index     uint64               `json:"index"`  // of the last entry of the log that it has
	Term      uint64               `json:"term"`
	Keyspaces []backupKeyspaceJSON `json:"keyspaces"`
}

// backupKeyspaceJSON is one set of keys of a backup.
type backupKeyspaceJSON struct {
	Name      string `json:"name"` // user, system
	Revision  int64  `json:"revision"`
	Compacted int64  `json:"compacted_revision"`
	Keys      int64  `json:"keys"`
	Leases    int    `json:"leases"`
	Bytes     int64  `json:"bytes"` // with the history
}

func (a *app) snapshotCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Back the store up, look at a backup, begin with one",
	}
	group(cmd)
	cmd.AddCommand(a.snapshotSaveCommand(), a.snapshotInspectCommand(), a.snapshotRestoreCommand())
	return cmd
}

func (a *app) snapshotSaveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "save FILE",
		Short: "Write all that the store has to a file",
		Long: `Write all that the store has to a file: keys with their history, and leases. It is of
one moment, and no older than the call. The agent may be any; the store goes on.

FILE is written whole or not at all, with mode 0600, and is checked before it is in
its place; one that is there is replaced. On the agent's socket it has the keys of the
cluster itself, too. Over TCP it has yours alone.`,
		Example: `  fairlead snapshot save /var/backups/fairlead-$(date +%F).snap`,
		Args:    exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := a.signalled(cmd.Context())
			defer cancel()
			saved, overTCP, err := a.save(ctx, args[0])
			switch {
			case err != nil && ctx.Err() != nil:
				return errors.New("snapshot save: interrupted, nothing was saved")
			case err != nil:
				return err
			case overTCP:
				fmt.Fprintln(a.env.Stderr, "fairlead: over TCP the backup has the user's keys only: save on the agent's socket to have the cluster's own, too")
			}
			if a.output == "json" {
				return printJSON(a.env.Stdout, saved)
			}
			user := saved.Keyspaces[0]
			return a.print("saved %s: %s at revision %d, %s\n", printable(args[0]), keys(user.Keys), user.Revision, size(int64(saved.Bytes)))
		},
	}
}

// save asks the agent for a backup, and says whether that went over TCP.
func (a *app) save(ctx context.Context, path string) (_ backupJSON, overTCP bool, err error) {
	c, err := a.connect(ctx)
	if err != nil {
		return backupJSON{}, false, err
	}
	defer c.Close()
	saved, err := a.receiveTo(ctx, c, path)
	network, _ := client.Address(c.Target())
	return saved, network == "tcp", inWords(c, "fairlead snapshot save", err)
}

// receiveTo writes beside the file first, so that what stands there is never a part.
func (a *app) receiveTo(ctx context.Context, c *client.Client, path string) (_ backupJSON, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return backupJSON{}, saidError{err}
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name()) // gone if it is in its place
		}
	}()
	if err := a.receive(ctx, c, f); err != nil {
		return backupJSON{}, err
	}
	data, err := os.ReadFile(f.Name())
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return backupJSON{}, saidError{err}
	}
	out, err := describe(path, data)
	if err != nil {
		return backupJSON{}, saidError{fmt.Errorf("what came is no whole backup, nothing was saved: %w", err)}
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return backupJSON{}, saidError{err}
	}
	// The rename is durable only once the directory is.
	dir, err := os.Open(filepath.Dir(path))
	if err == nil {
		err = errors.Join(dir.Sync(), dir.Close())
	}
	if err != nil {
		return backupJSON{}, saidError{fmt.Errorf("%s is written, but may be gone after a crash of this host: %w", path, err)}
	}
	return out, nil
}

// receive writes what the agent sends, and syncs it.
func (a *app) receive(ctx context.Context, c *client.Client, f *os.File) error {
	stream, err := pb.NewMaintenanceClient(c.Conn()).Snapshot(ctx, &pb.SnapshotRequest{}, large())
	if err != nil {
		return err
	}
	got := uint64(0)
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if _, err := f.Write(r.GetBlob()); err != nil {
			return saidError{err}
		}
		got += uint64(len(r.GetBlob()))
		a.progress(got, got+r.GetRemainingBytes())
	}
	if err := f.Sync(); err != nil {
		return saidError{err}
	}
	return nil
}

// progress shows on a terminal how far it is, in place.
func (a *app) progress(done, all uint64) {
	if !a.env.Terminal || a.output == "json" || all == 0 {
		return
	}
	end := ""
	if done == all {
		end = "\r\x1b[K" // what follows takes its place
	}
	fmt.Fprintf(a.env.Stderr, "\r%3d %% of %s%s", done*100/all, size(int64(all)), end)
}

// describe reads a backup and says what is in it.
func describe(path string, data []byte) (backupJSON, error) {
	machine, err := store.ReadBackup(data)
	if err != nil {
		return backupJSON{}, err
	}
	return describeView(path, data, machine.View()), nil
}

func describeView(path string, data []byte, v *store.View) backupJSON {
	sum := sha256.Sum256(data)
	out := backupJSON{File: path, Bytes: len(data), SHA256: hex.EncodeToString(sum[:])}
	out.Index, out.Term = v.Applied()
	for _, k := range []store.Keyspace{store.User, store.System} {
		stats := v.Stats(k)
		count := int64(0)
		all, err := v.Range(k, store.RangeOp{Range: store.Range{Key: store.FromKey, End: store.FromKey}, CountOnly: true})
		if err == nil {
			count = all.Count
		}
		out.Keyspaces = append(out.Keyspaces, backupKeyspaceJSON{k.String(), stats.Revision, stats.Compacted, count, stats.Leases, stats.Bytes})
	}
	return out
}

func (a *app) snapshotInspectCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "inspect FILE",
		Short: "Check a backup and show what is in it",
		Long: `Check a backup and show what is in it. It needs no agent. A file that is damaged, or
no backup of this store, is exit code 1.`,
		Args: exactly("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			data, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			out, err := describe(args[0], data)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if a.output == "json" {
				return printJSON(a.env.Stdout, out)
			}
			return a.writeBackup(out)
		},
	}
}

func (a *app) writeBackup(b backupJSON) error {
	err := table(a.env.Stdout, a.env.colour(), [][]cell{
		cells("file", printable(b.File)),
		cells("size", size(int64(b.Bytes))),
		cells("sha256", b.SHA256),
		cells("entry", fmt.Sprintf("%d of term %d", b.Index, b.Term)),
	})
	if err != nil {
		return err
	}
	rows := [][]cell{cells("KEYSPACE", "REVISION", "COMPACTED", "KEYS", "LEASES", "SIZE")}
	for _, k := range b.Keyspaces {
		rows = append(rows, cells(k.Name, strconv.FormatInt(k.Revision, 10), strconv.FormatInt(k.Compacted, 10), strconv.FormatInt(k.Keys, 10), strconv.Itoa(k.Leases), size(k.Bytes)))
	}
	if err := a.print("\n"); err != nil {
		return err
	}
	return table(a.env.Stdout, a.env.colour(), rows)
}

// keys says how many there are.
func keys(n int64) string {
	if n == 1 {
		return "1 key"
	}
	return fmt.Sprintf("%d keys", n)
}
