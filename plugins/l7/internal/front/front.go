package front

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/plugins/l7/internal/files"
	"github.com/fairlead/fairlead/plugins/l7/internal/http1"
	"github.com/fairlead/fairlead/plugins/l7/internal/settings"
)

// Front is all doors and what goes on behind them. Its methods may be called
// from any goroutine.
type Front struct {
	handler http.Handler
	refused func(*http.Request, *http1.Refusal)
	log     *slog.Logger
	metrics *metrics
	relieve func() // gives back descriptors of which nobody has need
	probe   string // the host of Check; nobody else knows it

	refusal, first, check time.Duration // see refusalTime, guardFirst and checkTime

	leaving  atomic.Bool  // answers say Connection: close
	requests atomic.Int64 // under way
	now      atomic.Pointer[current]
	fullAt   atomic.Int64 // unix ns of the last line of the log that says so

	mu    sync.Mutex // guards what follows; held while doors open and close
	doors []*door
	eras  []*era // the last one is in force; others end with their connections
}

// current is what a new connection begins with.
type current struct {
	era      *era
	settings settings.Settings
	most     int // connections of each door
}

// New returns a front without doors. handler takes the requests; refused is told
// of those that the guard refused, relieve is called when there is no descriptor
// for a connection; both may be nil. probe is a host name that nobody can guess.
func New(
	handler http.Handler, refused func(*http.Request, *http1.Refusal), relieve func(), probe string, registry prometheus.Registerer, log *slog.Logger,
) (*Front, error) {
	m, err := newMetrics(registry)
	if err != nil {
		return nil, err
	}
	if relieve == nil {
		relieve = func() {}
	}
	return &Front{handler: handler, refused: refused, relieve: relieve, metrics: m, probe: probe, refusal: refusalTime, first: guardFirst, check: checkTime, log: log}, nil
}

// Configure makes the front what the settings say, or returns an error and
// leaves it as it was. Open connections go on under the settings of before. A
// front that was closed is opened again.
func (f *Front) Configure(s settings.Settings) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	keep, come, leave, err := f.openDoors(s.Listen)
	if err != nil {
		return err
	}
	if now := f.now.Load(); len(f.eras) == 0 || !sameServer(now.settings, s) {
		f.retire()
		f.eras = append(f.eras, newEra(s, f.first, http1.Handler(http.HandlerFunc(f.serve), f.refused), f.log))
	}
	f.now.Store(&current{era: f.eras[len(f.eras)-1], settings: s, most: f.bound(s)})
	f.leaving.Store(false)
	for _, d := range come {
		go d.serve(f.hand, f.relieve)
		f.log.Info("taking requests", "listen", d.Addr().String())
	}
	for _, d := range leave {
		d.close()
		f.log.Info("taking no more requests", "listen", d.Addr().String())
	}
	f.doors = append(keep, come...)
	return nil
}

// bound is how many connections each listener takes.
func (f *Front) bound(s settings.Settings) int {
	most := s.MaxConnections
	if fit, limit := files.Room(len(s.Listen)); fit < most {
		f.log.Info("fewer connections than max_connections are taken: raise the limit of open files (LimitNOFILE, ulimit -n)",
			"max_connections", most, "taken", fit, "open_files", limit)
		most = fit
	}
	f.metrics.most.Set(float64(most))
	return most
}

// sameServer reports whether connections under both settings may share a server.
func sameServer(a, b settings.Settings) bool {
	return a.H2C == b.H2C && a.MaxHeaderBytes == b.MaxHeaderBytes && a.Timeouts.Header == b.Timeouts.Header && a.Timeouts.Idle == b.Timeouts.Idle
}

// retire ends the eras that have no connection, but the one in force.
func (f *Front) retire() {
	if len(f.eras) < 2 {
		return
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	var rest []*era
	for _, e := range f.eras[:len(f.eras)-1] {
		if e.open.Load() > 0 {
			rest = append(rest, e)
		} else {
			e.end(over, func() {})
		}
	}
	f.eras = append(rest, f.eras[len(f.eras)-1])
}

// openDoors opens what is wanted and not there, and tells which doors stay,
// come and leave. On an error all is as before.
func (f *Front) openDoors(wanted []string) (keep, come, leave []*door, err error) {
	leave = slices.Clone(f.doors)
	var missing []string
	for _, address := range wanted {
		i := slices.IndexFunc(leave, func(d *door) bool { return d.wanted == address })
		if i < 0 {
			missing = append(missing, address)
			continue
		}
		keep = append(keep, leave[i])
		leave = slices.Delete(leave, i, i+1)
	}
	for _, address := range missing {
		d, err := open("listen", address)
		var taken *Taken
		if i := inTheWay(leave, address); errors.As(err, &taken) && i >= 0 {
			// 0.0.0.0:80 and 127.0.0.1:80 cannot be open at once.
			old := leave[i]
			old.close()
			if d, err = open("listen", address); err == nil {
				leave = slices.Delete(leave, i, i+1)
			} else if back := f.reopen(old); back != nil {
				err = fmt.Errorf("%w; and %w", err, back)
			}
		}
		if err != nil {
			for _, d := range come {
				d.discard()
			}
			return nil, nil, nil, err
		}
		come = append(come, d)
	}
	return keep, come, leave, nil
}

// inTheWay is the index of a door that leaves and has the port of address, or -1.
func inTheWay(leave []*door, address string) int {
	_, port, _ := net.SplitHostPort(address)
	return slices.IndexFunc(leave, func(d *door) bool {
		_, its, _ := net.SplitHostPort(d.Addr().String())
		return its == port
	})
}

// reopen puts a new door in the place of one that was closed too early.
func (f *Front) reopen(old *door) error {
	d, err := open("listen", old.wanted)
	if err != nil {
		return err
	}
	f.doors[slices.Index(f.doors, old)] = d
	go d.serve(f.hand, f.relieve)
	return nil
}

// hand gives a connection to the era in force, or turns it away.
func (f *Front) hand(d *door, tcp *net.TCPConn) {
	now := f.now.Load()
	c := d.crowd.admit(tcp, now.most, time.Now(), f.metrics)
	if c == nil {
		f.metrics.refused.Inc()
		d.crowd.turnAway(tcp, f.refusal)
		f.tellFull(d, now.most)
		return
	}
	for {
		// Invariant: an era that is not in force and has no connection gets none.
		now.era.open.Add(1)
		again := f.now.Load()
		if again == now {
			break
		}
		now.era.open.Add(-1)
		now = again
	}
	now.era.take(http1.NewGuard(c, http1.Limits{
		HeaderBytes: now.settings.MaxHeaderBytes, HeaderTimeout: now.settings.Timeouts.Header, H2C: now.settings.H2C,
	}))
}

// fullEvery is how often the log says that a door is full.
const fullEvery = time.Minute

func (f *Front) tellFull(d *door, most int) {
	now, last := time.Now().UnixNano(), f.fullAt.Load()
	if now-last >= int64(fullEvery) && f.fullAt.CompareAndSwap(last, now) {
		f.log.Warn("connections are turned away: the listener has as many as it takes, and all are of use; raise max_connections or the limit of open files, or find out who holds them (ss -tn)",
			"listen", d.Addr().String(), "connections", most)
	}
}

// serve is the handler of all eras.
func (f *Front) serve(w http.ResponseWriter, r *http.Request) {
	if r.Host == f.probe {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	f.requests.Add(1)
	defer f.requests.Add(-1)
	if f.leaving.Load() && r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	f.handler.ServeHTTP(w, r)
}

// Requests is the number of requests under way.
func (f *Front) Requests() int { return int(f.requests.Load()) }

// Addresses lists where requests are taken, with the real ports.
func (f *Front) Addresses() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, d := range f.doors {
		out = append(out, d.Addr().String())
	}
	return out
}

// Leave makes each further answer ask its client to go elsewhere: the end is
// near, but requests are still taken.
func (f *Front) Leave() { f.leaving.Store(true) }

// Close takes no more requests, lets those under way come to their end until ctx
// ends, and cuts the rest, whose number it returns. Connections that were taken
// over from the server (tunnels) are not its own.
func (f *Front) Close(ctx context.Context) (cut int) {
	f.Leave()
	f.mu.Lock()
	defer f.mu.Unlock()
	var all sync.WaitGroup
	for _, d := range f.doors {
		all.Go(d.close)
	}
	all.Wait()
	var counted sync.Once
	for _, e := range f.eras {
		all.Go(func() { e.end(ctx, func() { counted.Do(func() { cut = f.Requests() }) }) })
	}
	all.Wait()
	f.doors, f.eras = nil, nil
	return cut
}

// checkTime bounds one question of Check.
const checkTime = 1500 * time.Millisecond

// errFull: a door is full, which is no fault of its own.
var errFull = errors.New("connections are turned away, as many as max_connections are open")

// Check makes a request at each door, as a client would, and returns what is
// wrong, door by door, and how many doors do not work at all.
func (f *Front) Check(ctx context.Context) (wrong []string, down int) {
	f.mu.Lock()
	doors := slices.Clone(f.doors)
	f.mu.Unlock()
	if len(doors) == 0 {
		return []string{"no listener is open"}, 1
	}
	ctx, cancel := context.WithTimeout(ctx, f.check)
	defer cancel()
	wrong = make([]string, len(doors))
	var all sync.WaitGroup
	var dead atomic.Int64
	for i, d := range doors {
		all.Go(func() {
			if err := f.ask(ctx, d); err != nil {
				wrong[i] = fmt.Sprintf("listen %s: %v", d.Addr(), err)
				if !errors.Is(err, errFull) {
					dead.Add(1)
				}
			}
			if why := d.trouble.Load(); why != nil && wrong[i] == "" {
				wrong[i] = fmt.Sprintf("listen %s: connections cannot be taken: %s", d.Addr(), *why)
			}
		})
	}
	all.Wait()
	return slices.DeleteFunc(wrong, func(s string) bool { return s == "" }), int(dead.Load())
}

func (f *Front) ask(ctx context.Context, d *door) error {
	t := &http.Transport{DisableKeepAlives: true, Proxy: nil, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "tcp", reachable(d.Addr()))
	}}
	defer t.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.probe+"/", nil)
	if err != nil {
		return err
	}
	answer, err := t.RoundTrip(r)
	if err != nil {
		return fmt.Errorf("it does not answer: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusServiceUnavailable && answer.Header.Get("X-Fairlead-Reason") == reasonFull {
		return errFull
	}
	if answer.StatusCode != http.StatusNoContent {
		return fmt.Errorf("somebody else answers, with status %d", answer.StatusCode)
	}
	return nil
}

// reachable is where a listener at any address can be reached on this host.
func reachable(a net.Addr) string {
	t, ok := a.(*net.TCPAddr)
	if !ok || !t.IP.IsUnspecified() {
		return a.String()
	}
	loopback := net.IPv4(127, 0, 0, 1)
	if t.IP.To4() == nil {
		loopback = net.IPv6loopback
	}
	return (&net.TCPAddr{IP: loopback, Port: t.Port}).String()
}
