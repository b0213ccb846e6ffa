package conformance

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// enterTime is how long a provider may answer questions otherwise until a second
// Reconcile is told of the first.
const enterTime = 300 * time.Millisecond

// held is a Reconcile that the provider is in, and that waits for us.
type held struct {
	stream reconcileStream
	begin  *pb.Begin
	cancel context.CancelFunc
	answer chan answer
}

type answer struct {
	response *pb.ReconcileResponse
	err      error
}

// enter begins a generation and sends changes. It returns when the provider has
// read Begin: a second Reconcile is told that one is under way. A provider that
// does not say so is given a while.
func (k *kit) enter(ctx context.Context, b *pb.Begin, changes ...*pb.Change) (*held, error) {
	give := time.Now().Add(k.options.Patience)
	for {
		h, err := k.hold(ctx, b, changes...)
		if err != nil {
			return nil, err
		}
		err = k.inside(ctx, h)
		if err == nil {
			return h, nil
		}
		h.cancel()
		// One of the questions came before its Begin, which was refused for that.
		if codeOf(err) != codes.Aborted || time.Now().After(give) {
			return nil, fmt.Errorf("generation %d was refused: %w", b.GetGeneration(), err)
		}
	}
}

func (k *kit) hold(ctx context.Context, b *pb.Begin, changes ...*pb.Change) (*held, error) {
	ctx, cancel := context.WithCancel(ctx)
	h := &held{begin: b, cancel: cancel, answer: make(chan answer, 1)}
	steps := []*pb.ReconcileRequest{beginStep(b)}
	for _, c := range changes {
		steps = append(steps, changeStep(c))
	}
	stream, err := k.client().Reconcile(ctx)
	if err == nil {
		err = send(stream, steps...)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	h.stream = stream
	go func() {
		r := &pb.ReconcileResponse{}
		err := stream.RecvMsg(r)
		h.answer <- answer{r, err}
	}()
	return h, nil
}

// inside waits until the provider is in h, and returns its error if it refused. One
// that answers nothing meanwhile may not have come to its CPU yet: it is given longer.
func (k *kit) inside(ctx context.Context, h *held) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var answers time.Time // since when there are any
	for ctx.Err() == nil {
		pause(ctx, 2*time.Millisecond)
		select {
		case a := <-h.answer:
			if a.err == nil {
				return fmt.Errorf("it was answered with generation %d before Commit", a.response.GetGeneration())
			}
			return a.err
		default:
		}
		if k.busy(ctx) {
			// Busy with ours, or did ours find it busy with the last question?
			pause(ctx, time.Millisecond)
			if len(h.answer) == 0 {
				return nil
			}
			continue
		}
		switch {
		case ctx.Err() != nil: // that was no answer
		case answers.IsZero():
			answers = time.Now()
		case time.Since(answers) > enterTime:
			return nil
		}
	}
	return nil
}

// commit ends a Reconcile that was held.
func (k *kit) commit(h *held) error {
	if err := send(h.stream, commitStep()); err != nil {
		return err
	}
	if err := h.stream.CloseSend(); err != nil {
		return err
	}
	a := <-h.answer
	if a.err != nil {
		return fmt.Errorf("the Reconcile that was under way: %w", a.err)
	}
	if a.response.GetGeneration() != h.begin.GetGeneration() {
		return fmt.Errorf("the Reconcile that was under way was answered with generation %d, want %d", a.response.GetGeneration(), h.begin.GetGeneration())
	}
	k.last = h.begin
	return nil
}

// breakOff begins a generation, sends changes, and then cancels.
func (k *kit) breakOff(ctx context.Context, b *pb.Begin, changes ...*pb.Change) error {
	h, err := k.enter(ctx, b, changes...)
	if err != nil {
		return err
	}
	h.cancel()
	return k.quiet(ctx)
}

// busy asks for a Reconcile that no provider may accept.
func (k *kit) busy(ctx context.Context) bool {
	_, err := k.steps(ctx, beginStep(&pb.Begin{}))
	return codeOf(err) == codes.Aborted
}

// quiet waits until no Reconcile is under way.
func (k *kit) quiet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, k.options.Patience)
	defer cancel()
	for k.busy(ctx) {
		pause(ctx, time.Millisecond)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("a Reconcile that was given up is under way after %v", k.options.Patience)
	}
	return nil
}
