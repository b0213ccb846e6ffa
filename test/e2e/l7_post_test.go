package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/netns"
	"github.com/fairlead/fairlead/test/scale"
)

// postFaults are what testdata/instance does to a POST; one instance does none.
var postFaults = []string{"", "die-unread", "die-read", "die-half", "reset-unread", "reset-read", "slow"}

// faulty is an instance that suffers, and is started again when it has died.
type faulty struct {
	port             int
	fault, name, log string
	run              *netns.Process
}

// TestL7PostOnce: whatever befalls an instance while it has a POST, no instance
// gets that request again. Its client may see an error, and never two effects.
func TestL7PostOnce(t *testing.T) {
	t.Parallel()
	cluster := newWebs(t, 1)
	one := cluster.hosts[0]
	dir := t.TempDir()
	var all []*faulty
	var instances []object
	for i, fault := range postFaults {
		f := &faulty{port: instancePort + 1 + i, fault: fault, name: "post-" + fault, log: filepath.Join(dir, fmt.Sprint(i))}
		f.start(one.agent)
		all = append(all, f)
		// No checks: the proxy alone has to see what is wrong.
		instances = append(instances, object{"id": fmt.Sprint("i", i), "address": one.url(f.port)})
	}
	one.services = []object{{"name": "post", "port": 80, "balance": "round-robin", "instances": instances}}
	cluster.start()

	// Some clients, each with one request at a time; the test's goroutine starts
	// again what dies.
	const clients = 8
	n := scale.N(4000)
	ids := make(chan int, n)
	for i := range n {
		ids <- i
	}
	close(ids)
	var mu sync.Mutex
	code := map[string]int{} // by id; 0: no answer
	done := make(chan struct{})
	var posters sync.WaitGroup
	for range clients {
		posters.Go(func() {
			c := newHTTPConn(one.node, one.url(proxyPort))
			defer c.close()
			for i := range ids {
				id, body := fmt.Sprint("id-", i), strings.Repeat("x", i%3*700) // none, short, longer
				status, _, _ := c.do(fmt.Sprintf("POST / HTTP/1.1\r\nHost: post\r\nX-Test-Id: %s\r\nContent-Length: %d\r\n\r\n%s", id, len(body), body), patience)
				mu.Lock()
				code[id] = status
				mu.Unlock()
				// What was left out is tried again with a GET, never with a POST.
				_, _, _ = c.do("GET / HTTP/1.1\r\nHost: post\r\n\r\n", patience)
			}
		})
	}
	go func() {
		posters.Wait()
		close(done)
	}()
	deaths := supervise(one.agent, all, done)

	// What happened to each request.
	executed, suffered := map[string]int{}, map[string]int{}
	for _, f := range all {
		text, err := os.ReadFile(f.log)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			switch word, id, _ := strings.Cut(strings.TrimSpace(line), " "); word {
			case "took":
				executed[id]++
			default:
				suffered[word]++
			}
		}
	}
	byCode := map[int]int{}
	for id, status := range code {
		byCode[status]++
		if executed[id] > 1 {
			t.Errorf("%s was executed %d times", id, executed[id])
		}
		if status == http.StatusOK && executed[id] != 1 {
			t.Errorf("%s was answered with 200 and executed %d times", id, executed[id])
		}
	}
	t.Logf("%d POST: answers by status %v (0: none); faults %v; %d processes died", n, byCode, suffered, deaths)
	for _, fault := range postFaults[1:] {
		if suffered[fault] == 0 {
			t.Errorf("the fault %s never struck", fault)
		}
	}
	if len(code) != n || byCode[http.StatusOK] < n/2 {
		t.Errorf("%d of %d POST were answered with 200, want half at least", byCode[http.StatusOK], n)
	}
	cluster.eventually(30*time.Second, "GET of the other service is answered", one.reaches("n1"))
}

func (f *faulty) start(a *agent) {
	a.t.Helper()
	f.run = a.runs(f.port, f.name, "--log", f.log, "--fault", f.fault, "--every", "3")
}

// supervise starts again who died, until done, and returns how many there were.
func supervise(a *agent, all []*faulty, done <-chan struct{}) (deaths int) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return deaths
		case <-tick.C:
		}
		for _, f := range all {
			select {
			case <-f.run.Done():
				deaths++
				f.start(a)
			default:
			}
		}
	}
}
