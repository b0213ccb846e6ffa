package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/core/model"
)

// watchEvery is how often what has no events is looked at.
const watchEvery = 10 * time.Millisecond

// demoWatch gathers what happens after the failure.
type demoWatch struct {
	d       *demo
	errs    chan error
	waiting int
	detect  context.CancelFunc // ends the waiting
	stop    context.CancelFunc // ends the reading of what the proxy counts
	tries   tries
	reading sync.WaitGroup
}

// fail lets the node fail and begins to watch what becomes of that.
func (d *demo) fail(ctx context.Context) (*demoWatch, error) {
	w := &demoWatch{d: d, errs: make(chan error, localNodes)}
	before, err := d.readTries(ctx)
	if err != nil {
		return nil, err
	}
	w.tries = tries{last: before}
	steps := sync.Mutex{}
	add := func(s demoStep) {
		steps.Lock()
		defer steps.Unlock()
		d.step(s)
	}
	v := d.victim()
	step := demoStep{Node: v.name, Transition: "killed"}
	d.failed = d.app.env.Now()
	if d.cable != nil {
		step.Transition = "cut off"
		if err := d.cable.cut(); err != nil {
			return nil, err
		}
	} else {
		step.PIDs = []int{v.agent.pid(), v.proxyPID}
		v.agent.signal(syscall.SIGKILL)
		// The pid was told by its agent, which was its parent until now.
		_ = syscall.Kill(v.proxyPID, syscall.SIGKILL)
		for _, i := range v.instances {
			i.process.signal(syscall.SIGKILL)
			step.PIDs = append(step.PIDs, i.process.pid())
		}
	}
	took := d.since()
	step.Detail = fmt.Sprintf("within %.1f ms", took*1000)
	add(step)

	start := func(f func() error) {
		w.waiting++
		go func() { w.errs <- f() }()
	}
	detect, cancel := context.WithTimeout(ctx, detectTimeout)
	for _, n := range d.cluster.nodes {
		if n != v {
			start(func() error { return d.awaitDead(detect, n, add) })
		}
	}
	start(func() error { return d.awaitGone(detect, add) })
	w.detect = cancel
	counting, stop := context.WithCancel(ctx)
	w.stop = stop
	w.reading.Go(func() { w.count(counting, add) })
	return w, nil
}

// await returns once all saw the failure.
func (w *demoWatch) await(ctx context.Context) error {
	defer w.detect()
	var all []error
	for range w.waiting {
		select {
		case err := <-w.errs:
			all = append(all, err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errors.Join(all...)
}

func (d *demo) since() float64 { return d.app.env.Now().Sub(d.failed).Seconds() }

// awaitDead follows the events of an agent until it holds the victim for dead.
func (d *demo) awaitDead(ctx context.Context, n *localNode, add func(demoStep)) error {
	api, err := client.Dial(ctx, n.socket)
	if err != nil {
		return err
	}
	defer api.Close()
	names := make(map[string]string)
	for _, node := range d.result.Cluster.Nodes {
		names[node.Gossip] = node.Name
	}
	for e, err := range api.Events(ctx, 0, true) {
		if err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("%s did not see %s dead within %v", n.name, d.victim().name, detectTimeout)
			}
			return err
		}
		if e.Member.Name != d.victim().name || e.At.Before(d.failed) {
			continue
		}
		add(demoStep{Seconds: e.At.Sub(d.failed).Seconds(), Observer: n.name, Node: e.Member.Name, Transition: e.Kind, From: names[e.From]})
		if e.Member.State == model.StateDead {
			return nil
		}
	}
	return fmt.Errorf("%s stopped before it saw %s dead", n.name, d.victim().name)
}

// awaitGone waits until the victim's instance is no endpoint any more.
func (d *demo) awaitGone(ctx context.Context, add func(demoStep)) error {
	n := d.through()
	var id string
	err := n.ask(ctx, "take out "+d.victim().name, func(api *client.Client) (bool, error) {
		detail, err := api.Endpoints(ctx, demoService)
		for _, e := range detail.Endpoints {
			if e.Node == d.victim().name && e.In {
				id = e.Instance
				return false, nil
			}
		}
		return err == nil, err
	})
	if err != nil {
		return err
	}
	add(demoStep{Seconds: d.since(), Observer: n.name, Node: d.victim().name, Transition: "endpoint gone", Detail: id})
	return nil
}

// triesSeen is what the proxy counted of tries that brought no answer. As all
// other instances are well, they went to the victim.
type triesSeen struct {
	failed  float64 // for which the endpoint was left out
	refused float64 // that were tried again, as the connect was refused: nothing was sent
	sent    float64 // that were tried again for another reason
}

type tries struct {
	last               triesSeen
	ejected, sent, any float64 // seconds since the failure of the first ejection, and of the last of the others
	gap                float64 // seconds between two reads, at most
}

// count reads the proxy's counters until ctx ends.
func (w *demoWatch) count(ctx context.Context, add func(demoStep)) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	before := 0.0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, err := w.d.readTries(ctx)
		if err != nil {
			continue // the next one may do; if none does, no ejection is told
		}
		at, t := w.d.since(), &w.tries
		t.gap, before = max(t.gap, at-before), at
		if now.failed > t.last.failed && t.ejected == 0 {
			t.ejected = at
			add(demoStep{Seconds: at, Observer: w.d.through().name, Node: w.d.victim().name, Transition: "ejected"})
		}
		if now.sent > t.last.sent {
			t.sent = at
		}
		if now != t.last {
			t.any = at
		}
		t.last = now
	}
}

// close ends the reading; the times stand.
func (w *demoWatch) close() {
	w.stop()
	w.reading.Wait()
	w.d.result.Resolution = w.tries.gap
	if w.tries.any > 0 {
		w.d.result.LastTry = &w.tries.any
	}
	if w.tries.sent > 0 {
		w.d.result.LastSent = &w.tries.sent
	}
}

func (d *demo) readTries(ctx context.Context) (triesSeen, error) {
	var seen triesSeen
	err := get(ctx, d.through().metrics, "/metrics", func(text *bufio.Scanner) error {
		for text.Scan() {
			series, value, _ := strings.Cut(text.Text(), " ")
			n, err := strconv.ParseFloat(value, 64)
			if err != nil || strings.HasPrefix(series, "#") || !strings.Contains(series, "web") {
				continue
			}
			switch name, labels, _ := strings.Cut(series, "{"); {
			case name == "fairlead_l7_failed_tries_total":
				seen.failed += n
			case name == "fairlead_l7_retries_total" && strings.Contains(labels, `"connect-refused"`):
				seen.refused += n
			case name == "fairlead_l7_retries_total":
				seen.sent += n
			}
		}
		return text.Err()
	})
	return seen, err
}

// counts asks the instances that can be reached for sure how many requests they
// answered, by id.
func (d *demo) counts(ctx context.Context) (map[string]uint64, error) {
	out := map[string]uint64{}
	for _, i := range d.cluster.instances(demoService) {
		if i.Node == d.victim().name {
			continue
		}
		err := get(ctx, i.addr, countPath, func(text *bufio.Scanner) error {
			text.Scan()
			var n instanceCount
			if err := json.Unmarshal(text.Bytes(), &n); err != nil {
				return fmt.Errorf("%s counts: %w", i.ID, err)
			}
			out[i.ID] = n.Requests
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// get reads an answer of one of our own processes.
func get(ctx context.Context, addr, path string, read func(*bufio.Scanner) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{}).DialContext}
	answer, err := transport.RoundTrip(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s%s: %s", addr, path, answer.Status)
	}
	return read(bufio.NewScanner(answer.Body))
}
