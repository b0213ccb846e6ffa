package conformance

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// answerTime is what a question that needs no work may take.
const answerTime = 3 * time.Second

// suite is one run: the target, and the provider that is spoken to now.
type suite struct {
	target   Target
	options  Options
	dir      string // short: sockets are in it
	tag      string // makes names of this run unique
	epoch    uint64
	launches int
	peer     *peer // nil: none
	info     *pb.InfoResponse
	owner    string // instance id that a provider had before us, which runs by itself
}

func newSuite(t Target, o Options, dir string) *suite {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return &suite{target: t, options: o, dir: dir, tag: hex.EncodeToString(b[:])}
}

// meet connects for the first time and asks who is there.
func (s *suite) meet(ctx context.Context) (*pb.InfoResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	var err error
	if s.info, err = s.peer.client.Info(ctx, &pb.InfoRequest{}); err != nil {
		return nil, fmt.Errorf("conformance: %s does not answer Info: %w", s.target.Exec+s.target.Endpoint, err)
	}
	if s.target.Endpoint != "" {
		if st, err := s.peer.client.State(ctx, &pb.StateRequest{}); err == nil {
			s.owner = st.GetInstanceId()
		}
	}
	return s.info, nil
}

// connect makes sure that a provider is there.
func (s *suite) connect(ctx context.Context) (err error) {
	if s.peer != nil && s.peer.proc != nil && !s.peer.proc.Running() {
		s.drop()
	}
	if s.peer != nil {
		return nil
	}
	if s.target.Endpoint != "" {
		s.peer, err = dial(socketPath(s.target.Endpoint))
	} else {
		s.peer, err = s.launch(ctx, way{child: s.target.Child})
	}
	return err
}

// drop ends the process, so that the next check has another one. A provider
// that is not ours is kept.
func (s *suite) drop() {
	if s.peer != nil && s.peer.proc != nil {
		s.clean()
		s.peer.close()
		s.peer = nil
	}
}

// lastWords is what a process of ours said before it ended by itself.
func (s *suite) lastWords() string {
	if s.peer == nil || s.peer.proc == nil || s.peer.proc.Running() {
		return ""
	}
	return s.peer.proc.Out.Quoted()
}

// clean removes what the checks left in the system, as far as possible.
func (s *suite) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	_, _ = s.peer.client.Cleanup(ctx, &pb.CleanupRequest{Scope: pb.CleanupScope_CLEANUP_SCOPE_OWNED, InstanceId: s.instance()})
}

// end leaves nothing behind, also of a process that is gone: another one cleans
// up after it.
func (s *suite) end() {
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	if s.launches == 0 && s.peer == nil || s.connect(ctx) != nil {
		return
	}
	s.clean()
	if s.owner != "" {
		// Under our tag its next cleanup would miss what it makes from now on. More
		// than the instance id and the configuration that we were given nobody knows.
		_, _ = s.peer.client.Configure(ctx, &pb.ConfigureRequest{Config: s.options.Config, InstanceId: s.owner})
	}
	s.peer.close()
	s.peer = nil
}

// instance is the instance id that all checks use.
func (s *suite) instance() string { return "conform-" + s.tag }

// kit is what a check works with: one session with the provider.
type kit struct {
	*suite
	session *pb.Session
	gen     uint64
	last    *pb.Begin // of the last generation that was accepted
	notes   []string
	sights  int  // how often the system was looked at, and right
	blind   bool // it could not be looked at

	committing bool // the crash came after Commit was sent
}

func newKit(s *suite) *kit {
	k := &kit{suite: s}
	k.renew("agent-" + s.tag)
	return k
}

// renew opens another session: its generations start anew.
func (k *kit) renew(agent string) {
	k.suite.epoch++
	k.session = &pb.Session{AgentId: agent, BootEpoch: k.suite.epoch}
	k.gen, k.last = 0, nil
}

// note adds to the evidence.
func (k *kit) note(format string, args ...any) {
	k.notes = append(k.notes, fmt.Sprintf(format, args...))
}

func (k *kit) client() pb.DataPlaneProviderClient { return k.peer.client }

// config is the configuration that all checks use.
func (k *kit) config() *pb.ConfigureRequest {
	return &pb.ConfigureRequest{
		Config: k.options.Config, InstanceId: k.instance(), Node: "conformance", RunDir: k.dir, StateDir: k.dir,
	}
}

// configure gives that to the provider.
func (k *kit) configure(ctx context.Context) error {
	err := k.again(ctx, func(ctx context.Context) error {
		_, err := k.client().Configure(ctx, k.config())
		return err
	})
	if err != nil {
		return failf("Configure with a good configuration: %w", err)
	}
	return nil
}

// again makes a call as often as the provider is busy, such as with one that was given
// up, as a host does.
func (k *kit) again(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, k.options.Patience)
	defer cancel()
	for {
		err := call(ctx)
		if codeOf(err) != codes.Aborted || ctx.Err() != nil {
			return err
		}
		pause(ctx, time.Millisecond)
	}
}

// open configures the provider and has it apply exactly these services.
func (k *kit) open(ctx context.Context, changes ...*pb.Change) error {
	if err := k.configure(ctx); err != nil {
		return err
	}
	if _, err := k.apply(ctx, k.begin(0), changes...); err != nil {
		return fmt.Errorf("a first snapshot: %w", err)
	}
	return nil
}

// begin opens the next generation of the session.
func (k *kit) begin(base uint64) *pb.Begin {
	k.gen++
	digest := binary.BigEndian.AppendUint64([]byte(k.session.GetAgentId()), k.session.GetBootEpoch()<<32|k.gen)
	return &pb.Begin{
		Session: k.session, Base: base, Generation: k.gen, Digest: digest[len(digest)-8:],
		Completeness: pb.Completeness_COMPLETENESS_EXCHANGED, AllowEmpty: base == 0,
	}
}

// unchanged is the sign of life: the last generation once more.
func (k *kit) unchanged() *pb.Begin {
	return &pb.Begin{
		Session: k.last.GetSession(), Base: k.last.GetGeneration(), Generation: k.last.GetGeneration(), Digest: k.last.GetDigest(),
		Completeness: k.last.GetCompleteness(),
	}
}

// apply runs a whole generation that has to be accepted.
func (k *kit) apply(ctx context.Context, b *pb.Begin, changes ...*pb.Change) (r *pb.ReconcileResponse, err error) {
	err = k.again(ctx, func(ctx context.Context) (err error) {
		r, err = k.reconcile(ctx, b, changes...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("generation %d was refused: %w", b.GetGeneration(), err)
	}
	k.last = b
	return r, nil
}

// pause waits a while, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// reconcile runs a whole generation, for better or worse.
func (k *kit) reconcile(ctx context.Context, b *pb.Begin, changes ...*pb.Change) (*pb.ReconcileResponse, error) {
	steps := []*pb.ReconcileRequest{{Step: &pb.ReconcileRequest_Begin{Begin: b}}}
	for _, c := range changes {
		steps = append(steps, changeStep(c))
	}
	return k.steps(ctx, append(steps, commitStep())...)
}

// steps sends these messages and reads the answer.
func (k *kit) steps(ctx context.Context, steps ...*pb.ReconcileRequest) (*pb.ReconcileResponse, error) {
	stream, err := k.client().Reconcile(ctx)
	if err != nil {
		return nil, err
	}
	if err := send(stream, steps...); err != nil {
		return nil, err
	}
	return stream.CloseAndRecv()
}

// reconcileStream is a Reconcile under way.
type reconcileStream = grpc.ClientStreamingClient[pb.ReconcileRequest, pb.ReconcileResponse]

// send sends messages until the provider answers.
func send(stream reconcileStream, steps ...*pb.ReconcileRequest) error {
	for _, m := range steps {
		if err := stream.Send(m); errors.Is(err, io.EOF) {
			return nil // the answer is there already
		} else if err != nil {
			return err
		}
	}
	return nil
}

func beginStep(b *pb.Begin) *pb.ReconcileRequest {
	return &pb.ReconcileRequest{Step: &pb.ReconcileRequest_Begin{Begin: b}}
}

func changeStep(c *pb.Change) *pb.ReconcileRequest {
	return &pb.ReconcileRequest{Step: &pb.ReconcileRequest_Change{Change: c}}
}

func commitStep() *pb.ReconcileRequest {
	return &pb.ReconcileRequest{Step: &pb.ReconcileRequest_Commit{Commit: &pb.Commit{}}}
}

// refused demands that a call failed with one of these codes.
func refused(what string, err error, want ...codes.Code) error {
	got := status.Code(err)
	for _, c := range want {
		if got == c {
			return nil
		}
	}
	if err == nil {
		return fmt.Errorf("%s was accepted, want %v", what, want)
	}
	return fmt.Errorf("%s was answered with %v (%v), want %v", what, got, status.Convert(err).Message(), want)
}

// state asks for State.
func (k *kit) state(ctx context.Context) (*pb.StateResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	st, err := k.client().State(ctx, &pb.StateRequest{})
	if err != nil {
		return nil, failf("State: %w", err)
	}
	return st, nil
}

// stays demands that State says the last accepted generation.
func (k *kit) stays(ctx context.Context, after string) error {
	st, err := k.state(ctx)
	if err != nil {
		return err
	}
	if !says(st, k.last) {
		return fmt.Errorf("after %s State says %s, want %s", after, describe(st), describe(k.last))
	}
	return nil
}

// says reports whether a state is that of a generation.
func says(st *pb.StateResponse, b *pb.Begin) bool {
	return st.GetGeneration() == b.GetGeneration() && st.GetSession().GetAgentId() == b.GetSession().GetAgentId() &&
		st.GetSession().GetBootEpoch() == b.GetSession().GetBootEpoch() && string(st.GetDigest()) == string(b.GetDigest())
}

// position is what Begin and State have in common.
type position interface {
	GetGeneration() uint64
	GetSession() *pb.Session
	GetDigest() []byte
}

func describe(p position) string {
	if p.GetGeneration() == 0 {
		return "nothing applied"
	}
	return fmt.Sprintf("generation %d of boot %d of %s, digest %x", p.GetGeneration(), p.GetSession().GetBootEpoch(), p.GetSession().GetAgentId(), p.GetDigest())
}
