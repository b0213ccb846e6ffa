package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/kvtext"
)

// leaseJSON is one lease. Scripts rely on it: keys are added at the end and never
// renamed.
type leaseJSON struct {
	ID      string   `json:"id"`                // hexadecimal, as --lease takes it
	TTL     int64    `json:"ttl"`               // seconds that are left
	Granted int64    `json:"granted,omitempty"` // seconds
	Keys    [][]byte `json:"keys,omitempty"`    // in base64
}

func (k *kv) leaseCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lease",
		Short: "Grant and renew leases, which keys end with",
		Long: `A lease ends when nobody renews it in time, and with it all keys that were put with
--lease. Ids are in hexadecimal.`,
		Example: `  id=$(fairlead kv lease grant 30s)
  fairlead kv put jobs/backup "$HOSTNAME" --if-absent --lease $id
  fairlead kv lease keep-alive $id &`,
	}
	group(cmd)
	cmd.AddCommand(k.leaseGrantCommand(), k.leaseRevokeCommand(), k.leaseKeepAliveCommand(), k.leaseTTLCommand(), k.leaseListCommand())
	return cmd
}

func (k *kv) leaseGrantCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "grant TIME",
		Short: "Make a lease and print its id",
		Long: `Make a lease that ends when it is not renewed for TIME, whole seconds such as 30s
or 10m, and print its id. The servers may choose a longer time.`,
		Args:              exactly("TIME"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			seconds, err := wholeSeconds(args[0])
			if err != nil {
				return usagef(cmd, "TIME %w", err)
			}
			return k.ask(cmd, func(ctx context.Context, conn grpc.ClientConnInterface) error {
				r, err := pb.NewLeaseClient(conn).LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: seconds})
				if err != nil {
					return err
				}
				if k.output == "json" {
					return printed(printJSON(k.env.Stdout, leaseJSON{ID: hexadecimal(r.GetID()), TTL: r.GetTTL(), Granted: r.GetTTL()}))
				}
				return k.print("%s\n", hexadecimal(r.GetID()))
			})
		},
	}
}

// wholeSeconds reads a duration, or a number of seconds as etcdctl takes it.
func wholeSeconds(text string) (int64, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 {
		return n, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second || d%time.Second != 0 {
		return 0, fmt.Errorf("is %q: want whole seconds, such as 30s or 10m", text)
	}
	return int64(d / time.Second), nil
}

func hexadecimal(id int64) string { return strconv.FormatInt(id, 16) }

// ofLease is a command about one lease.
func (k *kv) ofLease(cmd *cobra.Command, do func(context.Context, pb.LeaseClient, int64) error) *cobra.Command {
	cmd.Args = exactly("ID")
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := kvtext.ParseLease(args[0])
		if err != nil {
			return usagef(cmd, "%w", err)
		}
		return k.ask(cmd, func(ctx context.Context, conn grpc.ClientConnInterface) error {
			return do(ctx, pb.NewLeaseClient(conn), int64(id))
		})
	}
	return cmd
}

func (k *kv) leaseRevokeCommand() *cobra.Command {
	return k.ofLease(&cobra.Command{
		Use:   "revoke ID",
		Short: "End a lease, and delete its keys",
	}, func(ctx context.Context, c pb.LeaseClient, id int64) error {
		if _, err := c.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: id}); err != nil {
			return err
		}
		if k.output == "json" {
			return printed(printJSON(k.env.Stdout, leaseJSON{ID: hexadecimal(id)}))
		}
		return k.print("revoked %s\n", hexadecimal(id))
	})
}

func (k *kv) leaseTTLCommand() *cobra.Command {
	var keys bool
	cmd := k.ofLease(&cobra.Command{
		Use:   "ttl ID",
		Short: "Show for how long a lease still holds",
	}, func(ctx context.Context, c pb.LeaseClient, id int64) error {
		r, err := c.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: id, Keys: keys}, large())
		if err != nil {
			return err
		}
		if r.GetTTL() < 0 {
			return noLease(id)
		}
		if k.output == "json" {
			return printed(printJSON(k.env.Stdout, leaseJSON{hexadecimal(id), r.GetTTL(), r.GetGrantedTTL(), r.GetKeys()}))
		}
		if err := k.print("%ds of %ds are left\n", r.GetTTL(), r.GetGrantedTTL()); err != nil {
			return err
		}
		for _, key := range r.GetKeys() {
			if err := k.print("%s\n", k.shown(key)); err != nil {
				return err
			}
		}
		return nil
	})
	cmd.Flags().BoolVar(&keys, "keys", false, "list the keys that end with it, too")
	return cmd
}

func noLease(id int64) error {
	return saidError{fmt.Errorf("there is no lease %s: it ended, or never was", hexadecimal(id))}
}

func (k *kv) leaseListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the ids of all leases",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return k.ask(cmd, func(ctx context.Context, conn grpc.ClientConnInterface) error {
				r, err := pb.NewLeaseClient(conn).LeaseLeases(ctx, &pb.LeaseLeasesRequest{}, large())
				if err != nil {
					return err
				}
				ids := make([]string, len(r.GetLeases()))
				for i, l := range r.GetLeases() {
					ids[i] = hexadecimal(l.GetID())
				}
				if k.output == "json" {
					return printed(printJSON(k.env.Stdout, ids))
				}
				for _, id := range ids {
					if err := k.print("%s\n", id); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
}

func (k *kv) leaseKeepAliveCommand() *cobra.Command {
	var once bool
	cmd := &cobra.Command{
		Use:   "keep-alive ID",
		Short: "Renew a lease until interrupted",
		Long: `Renew a lease each third of its time until Ctrl-C, which does not end the lease. A
lease that is not there is exit code 1. While no agent answers it is tried again, as
long as the lease may hold.`,
		Args:              exactly("ID"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := kvtext.ParseLease(args[0])
			if err != nil {
				return usagef(cmd, "%w", err)
			}
			ctx, cancel := k.signalled(cmd.Context())
			defer cancel()
			cmd.SetContext(ctx)
			err = k.keepAlive(cmd, int64(id), once)
			if ctx.Err() != nil {
				return nil // Ctrl-C is how one ends it
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "renew it once")
	return cmd
}

// keepAlive renews with a call of its own each time, so that a lost connection costs
// one try and not the lease.
func (k *kv) keepAlive(cmd *cobra.Command, id int64, once bool) error {
	var holds time.Time // until when the lease does, as far as is known
	for {
		ttl, err := k.renew(cmd, id)
		var said saidError
		pause := ttl / 3
		switch {
		case err == nil && once:
			return nil
		case err == nil:
			holds = time.Now().Add(ttl)
		case errors.As(err, &said) || !time.Now().Before(holds):
			return err
		default:
			fmt.Fprintf(k.env.Stderr, "fairlead: %v; trying again\n", err)
			pause = renewPause
		}
		select {
		case <-cmd.Context().Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// renewPause is between tries to renew a lease that may end soon.
const renewPause = 500 * time.Millisecond

// renew renews once and prints for how long.
func (k *kv) renew(cmd *cobra.Command, id int64) (ttl time.Duration, err error) {
	err = k.ask(cmd, func(ctx context.Context, conn grpc.ClientConnInterface) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // ends the stream
		stream, err := pb.NewLeaseClient(conn).LeaseKeepAlive(ctx)
		if err != nil {
			return err
		}
		// An error of Send is the stream's end, whose reason Recv tells.
		_ = stream.Send(&pb.LeaseKeepAliveRequest{ID: id})
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if r.GetTTL() <= 0 {
			return noLease(id)
		}
		ttl = time.Duration(r.GetTTL()) * time.Second
		if k.output == "json" {
			return printed(printJSON(k.env.Stdout, leaseJSON{ID: hexadecimal(id), TTL: r.GetTTL()}))
		}
		return k.print("renewed %s for %v\n", hexadecimal(id), ttl)
	})
	return ttl, err
}
