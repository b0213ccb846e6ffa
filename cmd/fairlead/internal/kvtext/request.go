package kvtext

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Get is what the flags of a get say.
type Get struct {
	Span
	Limit        int64
	Revision     int64
	KeysOnly     bool
	Count        bool
	Serializable bool
	SortBy       string
	Descending   bool
}

// SortTargets are the words that --sort-by takes.
func SortTargets() []string { return []string{"key", "version", "create", "mod", "value"} }

// Flags adds the flags of a get.
func (g *Get) Flags(flags *pflag.FlagSet) {
	g.Span.Flags(flags)
	flags.Int64Var(&g.Limit, "limit", 0, "at most `N` keys; 0: all")
	flags.Int64Var(&g.Revision, "rev", 0, "as it was at revision `N`; 0: now")
	flags.BoolVar(&g.KeysOnly, "keys-only", false, "without the values")
	flags.BoolVar(&g.Count, "count", false, "only how many keys there are")
	flags.BoolVar(&g.Serializable, "serializable", false, "what this server has, which may be old; works without a leader")
	flags.StringVar(&g.SortBy, "sort-by", "key", "`WHAT` to sort by: "+strings.Join(SortTargets(), ", "))
	flags.BoolVar(&g.Descending, "descending", false, "the highest first")
}

// Request returns the request for KEY and perhaps RANGE_END.
func (g *Get) Request(args []string) (*pb.RangeRequest, error) {
	span := g.Span
	switch len(args) {
	case 1:
	case 2:
		if args[1] == "" {
			return nil, errors.New("the range end is empty: all keys from KEY on are --from-key")
		}
		span.End = args[1]
	default:
		return nil, fmt.Errorf("get wants KEY [RANGE_END], got %d words", len(args))
	}
	target := slices.Index(SortTargets(), g.SortBy)
	switch {
	case target < 0:
		return nil, fmt.Errorf("--sort-by is %q: want %s", g.SortBy, strings.Join(SortTargets(), ", "))
	case g.Limit < 0:
		return nil, fmt.Errorf("--limit is %d: want 0 or more", g.Limit)
	case g.Revision < 0:
		return nil, fmt.Errorf("--rev is %d: want 0 or more", g.Revision)
	case g.Count && g.KeysOnly:
		return nil, errors.New("give --count or --keys-only, not both")
	}
	r := &pb.RangeRequest{
		Limit: g.Limit, Revision: g.Revision, KeysOnly: g.KeysOnly, CountOnly: g.Count, Serializable: g.Serializable,
		SortTarget: pb.RangeRequest_SortTarget(target), // Invariant: the words are in the order of the numbers
	}
	switch {
	case g.Descending:
		r.SortOrder = pb.RangeRequest_DESCEND
	case target != 0:
		r.SortOrder = pb.RangeRequest_ASCEND
	}
	var err error
	r.Key, r.RangeEnd, err = span.Keys(args[0])
	return r, err
}

// IsRange reports whether a request may be answered with any number of keys.
func IsRange(r *pb.RangeRequest) bool { return len(r.RangeEnd) > 0 }

// Put is what the flags of a put say.
type Put struct {
	Lease LeaseID
	Prev  bool
}

// Flags adds the flags of a put.
func (p *Put) Flags(flags *pflag.FlagSet) {
	flags.Var(&p.Lease, "lease", "`ID` of the lease that the key ends with, in hexadecimal as `fairlead kv lease grant` prints it")
	flags.BoolVar(&p.Prev, "prev-kv", false, "show what was there before")
}

// Request returns the request that writes a value.
func (p *Put) Request(key string, value []byte) (*pb.PutRequest, error) {
	if key == "" {
		return nil, errors.New("the key is empty")
	}
	return &pb.PutRequest{Key: []byte(key), Value: value, Lease: int64(p.Lease), PrevKv: p.Prev}, nil
}

// Del is what the flags of a del say.
type Del struct {
	Span
	Prev bool
}

// Flags adds the flags of a del.
func (d *Del) Flags(flags *pflag.FlagSet) {
	d.Span.Flags(flags)
	d.EndFlag(flags)
	flags.BoolVar(&d.Prev, "prev-kv", false, "show what was there before")
}

// Request returns the request that deletes.
func (d *Del) Request(key string) (*pb.DeleteRangeRequest, error) {
	from, end, err := d.Keys(key)
	return &pb.DeleteRangeRequest{Key: from, RangeEnd: end, PrevKv: d.Prev}, err
}

// LeaseID is a flag and an argument: a lease, in hexadecimal.
type LeaseID int64

// ParseLease reads the id of a lease.
func ParseLease(text string) (LeaseID, error) {
	var id LeaseID
	err := id.Set(text)
	return id, err
}

// Set implements pflag.Value.
func (l *LeaseID) Set(text string) error {
	n, err := strconv.ParseInt(text, 16, 64)
	if err != nil || n <= 0 {
		return fmt.Errorf("%q is no id of a lease: want hexadecimal digits, such as 694d81417acd4754", text)
	}
	*l = LeaseID(n)
	return nil
}

// String implements pflag.Value.
func (l *LeaseID) String() string {
	if *l == 0 {
		return ""
	}
	return strconv.FormatInt(int64(*l), 16)
}

// Type implements pflag.Value.
func (*LeaseID) Type() string { return "lease" }
