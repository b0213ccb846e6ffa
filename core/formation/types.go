package formation

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/fairlead/fairlead/core/model"
)

// Errors that callers tell apart. What wraps them says what to do.
var (
	// ErrConfig is wrapped by every refusal of New.
	ErrConfig = errors.New("formation: bad configuration")
	// ErrRefused is wrapped by what an operator asked for and must not be done.
	ErrRefused = errors.New("formation: refused")
	// ErrDamaged is wrapped by every refusal of bytes to decode.
	ErrDamaged = errors.New("formation: damaged")
)

const (
	// MaxExpect bounds bootstrap_expect.
	MaxExpect = 9
	// MaxServers bounds the servers that have to agree.
	MaxServers = 512
	// maxLost bounds the clusters that an operator gave up.
	maxLost = 64
)

// ClusterID identifies a cluster for all time. Its candidate draws it.
//
// Invariant: 0 is no cluster, and no id is drawn twice.
type ClusterID uint64

// ParseClusterID reads the form that String prints.
func ParseClusterID(s string) (ClusterID, error) {
	v, err := strconv.ParseUint(s, 16, 64)
	if err != nil || len(s) != 16 || v == 0 {
		return 0, fmt.Errorf("%w: cluster id %q: want 16 hexadecimal digits that are not all zero", ErrDamaged, s)
	}
	return ClusterID(v), nil
}

// String prints 16 lower-case hexadecimal digits.
func (id ClusterID) String() string { return fmt.Sprintf("%016x", uint64(id)) }

// Member is what SWIM tells of another server. One whose bootstrap_expect is not
// known yet is left out until it is.
type Member struct {
	ID   model.NodeID
	Name string
	// Alive is true for a suspect too. A server that said left, or was made to,
	// is no member.
	Alive bool
	// Expect is its bootstrap_expect: 0 for a server that waits to be added.
	Expect int
	// Cluster is the one that it belongs to, or waits to be added to; 0: none.
	Cluster ClusterID
	// Learner says that it has no vote in Cluster, or none yet: it may be waiting for
	// servers that are gone, and is no proof that one of them lives.
	Learner bool
}

// Ballot is a cluster that a candidate proposes.
//
// Invariant: the candidate is a voter, both lists ascend, and no server is in both.
type Ballot struct {
	Candidate model.NodeID
	Cluster   ClusterID
	// Voters are the bootstrap_expect servers that become the cluster.
	Voters []model.NodeID
	// Witnesses are all others that the candidate saw alive. They have to agree
	// too, and are added to the cluster later.
	Witnesses []model.NodeID
}

// voter reports whether id is one of the voters.
func (b *Ballot) voter(id model.NodeID) bool { return slices.Contains(b.Voters, id) }

// has reports whether id has to agree.
func (b *Ballot) has(id model.NodeID) bool { return b.voter(id) || slices.Contains(b.Witnesses, id) }

// all lists everyone who has to agree.
func (b *Ballot) all() []model.NodeID { return slices.Concat(b.Voters, b.Witnesses) }

// size is how many have to agree.
func (b *Ballot) size() int { return len(b.Voters) + len(b.Witnesses) }

// check says what is wrong with a whole ballot.
func (b *Ballot) check() error {
	switch {
	case b.Candidate == 0 || b.Cluster == 0:
		return fmt.Errorf("%w: a ballot without candidate or cluster", ErrDamaged)
	case len(b.Voters) > MaxExpect || b.size() > MaxServers:
		return fmt.Errorf("%w: a ballot of %d voters and %d witnesses", ErrDamaged, len(b.Voters), len(b.Witnesses))
	case !b.voter(b.Candidate):
		return fmt.Errorf("%w: a ballot whose candidate is no voter", ErrDamaged)
	case !ascending(b.Voters) || !ascending(b.Witnesses):
		return fmt.Errorf("%w: a ballot whose lists do not ascend", ErrDamaged)
	}
	for _, id := range b.Witnesses {
		if b.voter(id) {
			return fmt.Errorf("%w: a ballot with a voter that is a witness too", ErrDamaged)
		}
	}
	return nil
}

func ascending(ids []model.NodeID) bool {
	var last model.NodeID
	for _, id := range ids {
		if id <= last {
			return false
		}
		last = id
	}
	return true
}

// Record is what a server keeps on disk. Ballots in it are never changed.
type Record struct {
	// Yes is the ballot that this server agreed to, its own proposal too.
	Yes *Ballot
	// Formed is the ballot of the cluster that this server belongs to. Of a server
	// that was added later it names the cluster alone.
	Formed *Ballot
	// Begun says that this server has state of the cluster that it belongs to, so that
	// nothing begins again if that is gone.
	Begun bool
	// Seen is a cluster of others that this server waits to be added to.
	Seen ClusterID
	// Lost are clusters, formed or not, that an operator gave up.
	Lost []ClusterID
}

// Decision is a cluster that this server is a voter of from its beginning. The
// Raft id of each is its node id.
type Decision struct {
	Cluster ClusterID
	Voters  []model.NodeID
}

// Kind is what a message is. Numbers are only ever added.
type Kind uint8

const (
	// KindAsk is the candidate's question to all that have to agree.
	KindAsk Kind = 1
	// KindYes answers it; the sender's yes is on its disk.
	KindYes Kind = 2
	// KindNo answers it, and says why.
	KindNo Kind = 3
	// KindWithdrawn is the candidate's word that a ballot will never form.
	KindWithdrawn Kind = 4
	// KindQuery asks what became of a ballot that the sender agreed to.
	KindQuery Kind = 5
	// KindFormed tells of a cluster that has formed.
	KindFormed Kind = 6
)

// Why is a reason to say no. Numbers are only ever added.
type Why uint8

const (
	// WhyBound: the sender agreed to Cluster of the candidate Node.
	WhyBound Why = 1
	// WhyCluster: it knows that Cluster has formed.
	WhyCluster Why = 2
	// WhyExpect: Node declares Expect servers.
	WhyExpect Why = 3
	// WhyUnseen: it sees Node alive, which the candidate does not ask.
	WhyUnseen Why = 4
	// WhyFew: the servers asked are not more than half of the Expect that it knows.
	WhyFew Why = 5
	// WhyLost: an operator gave that ballot up.
	WhyLost Why = 6
)

// Message goes from server to server over a channel that proves who sent it.
// It may be lost, late, doubled and overtaken.
type Message struct {
	Kind     Kind
	From, To model.NodeID
	// Ballot is whole in KindAsk and KindFormed; elsewhere candidate and cluster
	// name it.
	Ballot Ballot
	// The rest says why not.
	Why     Why
	Node    model.NodeID
	Cluster ClusterID
	Expect  int
}

// Ready is what the caller does after each call: first it makes Record durable,
// if there is one, then it sends Messages and acts on Decision. If it cannot write
// Record, it sends nothing and lets go of the Server.
type Ready struct {
	Record   *Record
	Messages []Message
	Decision *Decision
}
