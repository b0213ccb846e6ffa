package l7

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// patience is for what takes a moment on an idle machine.
const patience = time.Minute

// workload is what clients ask for.
type workload struct {
	name     string
	requests [][]byte // each one of them at random
	answer   int      // bytes of the body that has to come
	clients  int
}

// get is a workload of requests without body for one path, each for one of the
// hosts.
func get(name, path string, answer, clients int, hosts ...string) workload {
	w := workload{name: name, answer: answer, clients: clients}
	for _, h := range hosts {
		w.requests = append(w.requests, fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n", path, h))
	}
	return w
}

// post is a workload of requests with a body.
func post(name string, body, answer, clients int, host string) workload {
	head := fmt.Appendf(nil, "POST / HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n", host, body)
	return workload{name: name, requests: [][]byte{append(head, make([]byte, body)...)}, answer: answer, clients: clients}
}

// sample is what one window showed.
type sample struct {
	cpu      float64 // µs of the proxy for each request
	rate     float64 // requests a second
	p50, p99 float64 // ms
}

// run puts a load on an address until window has passed after the warm-up, of
// at least so many requests, and an answer came in it. pid is the process whose CPU counts.
func (b *bench) run(at netip.AddrPort, pid int, w workload, window time.Duration, warmUp int64) sample {
	t := b.t
	t.Helper()
	l := &load{work: w}
	conns := make([]net.Conn, w.clients)
	for i := range conns {
		conns[i] = dial(t, at)
		_ = conns[i].SetDeadline(time.Now().Add(2*window + 2*patience))
	}
	errs := make([]error, w.clients)
	var wg sync.WaitGroup
	for i, c := range conns {
		wg.Go(func() {
			defer c.Close()
			if errs[i] = l.client(c); errs[i] != nil {
				l.failed.Store(true)
			}
		})
	}
	deadline := time.Now().Add(patience)
	for pause(window / 5); l.answers.Load() < warmUp && !l.failed.Load(); pause(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("%s: only %d requests in %v", w.name, l.answers.Load(), patience)
			break
		}
	}
	before, begun, had := cpuOf(t, pid), time.Now(), l.answers.Load()
	l.counting.Store(true)
	// On a busy machine a short window may pass before the proxy gets a turn.
	for pause(window); l.answers.Load() == had && !l.failed.Load() && time.Since(begun) < patience; {
		pause(window)
	}
	l.counting.Store(false)
	took, got, used := time.Since(begun), l.answers.Load()-had, cpuOf(t, pid)-before
	l.over.Store(true)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
	}
	if got == 0 {
		t.Fatalf("%s: no answer in %v", w.name, took)
	}
	b.sent += l.answers.Load()
	return sample{
		cpu: float64(used.Nanoseconds()) / 1000 / float64(got), rate: float64(got) / took.Seconds(),
		p50: l.latency.quantile(0.5), p99: l.latency.quantile(0.99),
	}
}

// load is one run of a workload.
type load struct {
	work     workload
	answers  atomic.Int64
	counting atomic.Bool // latencies
	over     atomic.Bool
	failed   atomic.Bool
	latency  histogram
}

// client sends requests one after the other until the load is over.
func (l *load) client(c net.Conn) error {
	r := bufio.NewReaderSize(c, 16<<10)
	for !l.over.Load() && !l.failed.Load() {
		request := l.work.requests[rand.IntN(len(l.work.requests))]
		begun := time.Now()
		if err := exchange(c, r, request, l.work.answer); err != nil {
			return err
		}
		l.answers.Add(1)
		if l.counting.Load() {
			l.latency.add(time.Since(begun))
		}
	}
	return nil
}

// exchange sends one request and reads its answer, which has to be a 200 with a
// body of so many bytes.
func exchange(c net.Conn, r *bufio.Reader, request []byte, want int) error {
	if _, err := c.Write(request); err != nil {
		return err
	}
	length := -1
	for first := true; ; first = false {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if first && !bytes.HasPrefix(line, []byte("HTTP/1.1 200 ")) {
			return fmt.Errorf("answered %q", line)
		}
		if len(line) <= 2 {
			break
		}
		const name = "content-length:"
		if len(line) > len(name) && bytes.EqualFold(line[:len(name)], []byte(name)) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(line[len(name):]))); err != nil {
				return err
			}
		}
	}
	if length != want {
		return fmt.Errorf("a body of %d bytes, want %d", length, want)
	}
	_, err := r.Discard(length)
	return err
}

func dial(t *testing.T, at netip.AddrPort) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", at.String(), patience)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// pause lets time pass: the measurement is of time itself.
func pause(d time.Duration) { <-time.After(d) }

// histogram counts times in buckets of 2 %, from a microsecond up.
type histogram struct{ buckets [1024]atomic.Int64 }

var step = math.Log(1.02)

func (h *histogram) add(d time.Duration) {
	us := max(1, float64(d.Nanoseconds())/1000)
	h.buckets[min(int(math.Log(us)/step), len(h.buckets)-1)].Add(1)
}

// quantile is in ms; NaN if nothing was counted.
func (h *histogram) quantile(q float64) float64 {
	var all, sum int64
	for i := range h.buckets {
		all += h.buckets[i].Load()
	}
	for i := range h.buckets {
		if sum += h.buckets[i].Load(); all > 0 && float64(sum) >= q*float64(all) {
			return math.Exp((float64(i)+0.5)*step) / 1000
		}
	}
	return math.NaN()
}

// counted asks the backend for the number of its requests.
func counted(t *testing.T, backend netip.AddrPort) int64 {
	t.Helper()
	c := dial(t, backend)
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, "GET /count HTTP/1.1\r\nHost: count\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	var length int
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscanf(line, "Content-Length: %d", &length); err != nil && line == "\r\n" {
			break
		}
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(r, body); err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(string(body), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
