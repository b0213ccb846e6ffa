package transport

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/core/raft"
	"github.com/fairlead/fairlead/core/raft/transport/transportpb"
)

// asker puts questions to one server. While as many calls as may be are on the
// way, questions wait, and then go together.
type asker struct {
	p     *peer
	link  *link
	queue *queue[*asking]
}

// asking is a question that somebody waits for.
type asking struct {
	ctx      context.Context
	question *transportpb.Question
	answer   chan asked // of one
}

type asked struct {
	answer raft.Answer
	err    error
}

const (
	// callsAtOnce is so small that questions meet: each call costs more than a
	// question in it. Of 1, 2, 4 and 8, 2 took the least CPU per write in
	// BenchmarkPropose with 64 writers, and not more time than any.
	callsAtOnce = 2
	// maxQuestions bounds those of one call.
	maxQuestions = 1024
	// questionOverhead is more than what a question costs beside itself.
	questionOverhead = 16
)

var (
	errBusy  = errors.New("transport: too many questions wait for the server that leads")
	errCount = errors.New("transport: another number of answers than of questions")
)

func newAsker(p *peer) *asker {
	limits := p.t.cfg.Limits
	limits.QueueMessages = min(limits.QueueMessages, maxQuestions)
	return &asker{p: p, link: &link{t: p.t, to: p.id}, queue: newQueue[*asking](limits)}
}

// ask waits for the answer to one question.
func (p *peer) ask(ctx context.Context, q raft.Question) (raft.Answer, error) {
	question, err := encodeQuestion(q)
	if err != nil {
		return raft.Answer{}, err
	}
	size := proto.Size(question) + questionOverhead
	if room := p.t.cfg.Limits.FrameBytes - frameOverhead; size > room {
		return raft.Answer{}, fmt.Errorf("transport: a question of %d bytes does not fit into a frame, which has %d: the command is too large, or frames are too small", size, room)
	}
	a := &asking{ctx: ctx, question: question, answer: make(chan asked, 1)}
	if !p.asker.queue.add(a, size) {
		return raft.Answer{}, errBusy
	}
	p.t.metrics.questions.Inc()
	select {
	case got := <-a.answer:
		return got.answer, got.err
	case <-ctx.Done():
		return raft.Answer{}, ctx.Err()
	case <-p.ctx.Done():
		return raft.Answer{}, errStopped
	}
}

// run puts questions by a few goroutines that stay: a call needs a deep stack.
func (k *asker) run() {
	defer k.link.close()
	var all sync.WaitGroup
	for range callsAtOnce {
		all.Go(func() {
			for {
				batch := k.queue.take(k.p.ctx.Done(), k.p.t.cfg.Limits.FrameBytes-frameOverhead)
				if batch == nil {
					return
				}
				k.call(batch)
			}
		})
	}
	all.Wait()
}

// call puts the questions that somebody still waits for, and hands out the
// answers.
func (k *asker) call(batch []*asking) {
	request := &transportpb.AskRequest{}
	var waiting []*asking
	until := time.Now()
	limit := until.Add(ioTimeout)
	for _, a := range batch {
		if a.ctx.Err() != nil {
			continue
		}
		deadline, ok := a.ctx.Deadline()
		if !ok || deadline.After(limit) {
			deadline = limit
		}
		if deadline.After(until) {
			until = deadline
		}
		waiting, request.Questions = append(waiting, a), append(request.Questions, a.question)
	}
	if len(waiting) == 0 {
		return
	}
	ctx, cancel := context.WithDeadline(k.p.t.greet(k.p.ctx, k.p.id), until)
	defer cancel()
	k.p.t.metrics.asks.Inc()
	response, err := k.put(ctx, request)
	if err == nil && len(response.GetAnswers()) != len(waiting) {
		err = errCount
	}
	for i, a := range waiting {
		if err != nil {
			a.answer <- asked{err: err}
			continue
		}
		answer, err := decodeAnswer(response.GetAnswers()[i], k.p.id)
		a.answer <- asked{answer, err}
	}
}

func (k *asker) put(ctx context.Context, r *transportpb.AskRequest) (*transportpb.AskResponse, error) {
	conn, err := k.link.open()
	if err != nil {
		return nil, err
	}
	defer k.link.release(conn)
	response, err := transportpb.NewTransportClient(conn).Ask(ctx, r)
	return response, k.link.failed(err)
}
