package transport

import (
	"context"
	"errors"
	"io"
	"sync"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/core/raft"
	"github.com/fairlead/fairlead/core/raft/transport/transportpb"
	"github.com/fairlead/fairlead/core/store"
)

// service is what others call.
type service struct {
	transportpb.UnimplementedTransportServer
	t *Transport
}

var (
	errUnavailable = status.Error(codes.Unavailable, "transport: this server is not running")
	errImpostor    = status.Error(codes.InvalidArgument, "transport: a message of another server than the one that the stream is from")
)

// Messages takes a stream of messages.
func (s service) Messages(in grpc.ClientStreamingServer[transportpb.MessagesRequest, transportpb.MessagesResponse]) error {
	t := s.t
	from, err := t.admit(in.Context())
	if err != nil {
		return err
	}
	if !t.tell(func(raft.Handler) {}) {
		return errUnavailable
	}
	if err := in.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	// It is read beside this, so that Stop need not wait until somebody sends.
	ended := make(chan error, 1)
	if !t.spawn(func() { ended <- t.take(from, in) }) {
		return errUnavailable
	}
	select {
	case err := <-ended:
		return err
	case <-t.ctx.Done():
		return errUnavailable
	}
}

// take hands over the messages of a stream. Who sends them and is a member no
// longer is told so by the end of the stream.
func (t *Transport) take(from uint64, in grpc.ClientStreamingServer[transportpb.MessagesRequest, transportpb.MessagesResponse]) error {
	node, _ := PeerNode(in.Context())
	var a assembler
	for {
		r, err := in.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return in.SendAndClose(&transportpb.MessagesResponse{})
		case err != nil:
			return err
		}
		if _, now, ok := t.cfg.Resolve(from); !ok || now != node.Name {
			_, err := t.admit(in.Context())
			return err
		}
		if err := a.add(r.GetData(), func(m *pb.Message) error { return t.receive(from, m) }); err != nil {
			return status.Error(codes.InvalidArgument, status.Convert(err).Message())
		}
	}
}

func (t *Transport) receive(from uint64, m *pb.Message) error {
	if m.GetFrom() != from {
		return errImpostor
	}
	t.metrics.received.Inc()
	err := errUnavailable
	t.tell(func(h raft.Handler) {
		// What the handler cannot use or has no room for is lost, as on the way; it
		// counts that.
		_ = h.Receive(m)
		err = nil
	})
	return err
}

// Ask has questions answered.
func (s service) Ask(ctx context.Context, r *transportpb.AskRequest) (*transportpb.AskResponse, error) {
	t := s.t
	from, err := t.admit(ctx)
	if err != nil {
		return nil, err
	}
	if len(r.GetQuestions()) > maxQuestions {
		return nil, status.Errorf(codes.InvalidArgument, "transport: %d questions at once; at most %d", len(r.GetQuestions()), maxQuestions)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	var answers []*transportpb.Answer
	if !t.tell(func(h raft.Handler) { answers = answerAll(ctx, h, from, r.GetQuestions()) }) {
		return nil, errUnavailable
	}
	return fit(answers, t.cfg.Limits.FrameBytes-frameOverhead), nil
}

// answerAll answers questions beside each other, but those with commands together, as
// far as that makes no entry that is too large.
func answerAll(ctx context.Context, h raft.Handler, from uint64, questions []*transportpb.Question) []*transportpb.Answer {
	answers := make([]*transportpb.Answer, len(questions))
	var all sync.WaitGroup
	defer all.Wait()
	var b bundle
	carry := func() {
		if of := b; len(of.parts) > 0 {
			all.Go(func() { of.answer(ctx, h, from, answers) })
		}
		b = bundle{}
	}
	for i, p := range questions {
		q, err := decodeQuestion(p)
		switch {
		case err != nil:
			answers[i] = failure(false, err.Error())
		case len(q.Commands) > 0:
			if b.bytes += len(p.GetCommands()); b.bytes > bundleBytes {
				carry()
				b.bytes = len(p.GetCommands())
			}
			b.parts = append(b.parts, part{i, len(q.Commands)})
			b.commands = append(b.commands, q.Commands...)
		default:
			all.Go(func() { answers[i] = encodeAnswer(h.Answer(ctx, from, q)) })
		}
	}
	carry()
	return answers
}

// bundleBytes is about how many bytes of commands are put into the log together.
const bundleBytes = 512 << 10

// bundle is commands of several questions.
type bundle struct {
	commands []store.Command
	parts    []part
	bytes    int
}

// part is how many of the commands are of a question.
type part struct{ question, commands int }

func (b *bundle) answer(ctx context.Context, h raft.Handler, from uint64, answers []*transportpb.Answer) {
	a, err := h.Answer(ctx, from, raft.Question{Commands: b.commands})
	for _, p := range b.parts {
		var own raft.Answer
		if err == nil {
			own.Results, a.Results = a.Results[:p.commands], a.Results[p.commands:]
		}
		answers[p.question] = encodeAnswer(own, err)
	}
}

// fit leaves out answers that do not fit into a frame. Who asked finds results of
// commands in its own log as well.
func fit(answers []*transportpb.Answer, room int) *transportpb.AskResponse {
	for i, a := range answers {
		size := proto.Size(a) + questionOverhead
		left := (len(answers) - i - 1) * (len(tooLarge) + 2*questionOverhead)
		if size > room-left {
			answers[i] = failure(false, tooLarge)
			size = proto.Size(answers[i]) + questionOverhead
		}
		room -= size
	}
	return &transportpb.AskResponse{Answers: answers}
}

const tooLarge = "the answer does not fit into a frame"
