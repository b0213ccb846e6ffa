package conformance

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

func processChecks() []Check {
	return []Check{
		{
			ID: "process.handshake", Demand: "Started by a host, the first line on standard output is the handshake, and grpc.health.v1 says SERVING for plugin.", Exec: true,
			Remedy: "print nothing before the handshake; with the SDK, nothing before Serve, which takes standard output away", run: handshakeFirst,
		},
		{
			ID: "process.by-hand", Demand: "Started without a cookie and without an argument it says what it is on standard error, and exits with 2.", Exec: true,
			Remedy: "look for the cookie before serving", run: byHand,
		},
		{
			ID: "process.long-path", Demand: "A socket path of more than 100 bytes is refused with a message.", Exec: true,
			Remedy: "measure the path before listening, say its length and the limit", run: longPath,
		},
		{
			ID: "process.host-loss", Demand: "With FAIRLEAD_ON_HOST_LOSS unset, the process ends within a second when the host is gone.", Exec: true,
			Remedy: "read FAIRLEAD_HOST_FD until its end of file", run: endsWithHost,
		},
		{
			ID: "process.host-loss-serve", Demand: "With FAIRLEAD_ON_HOST_LOSS=serve, it goes on serving on FAIRLEAD_SERVE_SOCKET when the host is gone.", Exec: true,
			Remedy: "take no notice of the end of file on FAIRLEAD_HOST_FD, nor of closed outputs", run: servesWithoutHost,
		},
		{
			ID: "process.deaf-host", Demand: "The provider goes on when nobody reads its output any more.", Exec: true, spent: true,
			Remedy: "ignore SIGPIPE on descriptors 1 and 2, and drop logs that cannot be written", run: survivesDeafHost,
		},
		{
			ID: "process.leaks", Demand: "Reconcile leaks neither descriptors nor memory.", Exec: true, fresh: true,
			Remedy: "close what each generation opens, also on errors", run: leaksNothing,
		},
		{
			ID: "process.sigterm", Demand: "SIGTERM ends the process within 5 s, also with a Watch open.", Exec: true, spent: true,
			Remedy: "end streams and stop serving on SIGTERM", run: endsOnSigterm,
		},
	}
}

func survivesDeafHost(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(1)); err != nil {
		return err
	}
	k.peer.proc.deafen()
	bad := service(2, func(s *pb.Service) { s.Frontends[0].Address = []byte{1} })
	for n := range 20 {
		if _, err := k.apply(ctx, k.begin(0), several(1), &pb.Change{Services: []*pb.Service{bad}}); err != nil {
			return failf("Reconcile %d after its output was closed: %w", n+1, err)
		}
		if _, err := k.client().Configure(ctx, k.bad("{")); err == nil {
			return fmt.Errorf("a bad configuration was accepted")
		}
	}
	if !k.peer.proc.Running() {
		return fmt.Errorf("the process ended (%v) when its output was closed", k.peer.proc.Cmd.ProcessState)
	}
	k.note("20 generations without a reader")
	return nil
}

// usage is what a process holds.
type usage struct {
	fds, rss int
}

// slack is what may come and go.
const (
	slackFds = 4
	slackRSS = 32 << 20
)

func leaksNothing(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(20)); err != nil {
		return err
	}
	churn := func(times int) error {
		for n := range times {
			if _, err := k.apply(ctx, k.begin(0), several(20+n%5)); err != nil {
				return err
			}
			if n%10 == 0 {
				if err := k.breakOff(ctx, k.begin(k.last.GetGeneration()), whole(30, 1)); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := churn(10); err != nil { // what is made once is no leak
		return err
	}
	before, err := k.peer.proc.usage()
	if err != nil {
		return err
	}
	if err := churn(k.options.Reconciles); err != nil {
		return err
	}
	after, err := k.peer.proc.settled(ctx, before)
	if err != nil {
		return err
	}
	k.note("over %d generations: descriptors %d → %d, memory %d → %d KiB", k.options.Reconciles, before.fds, after.fds, before.rss>>10, after.rss>>10)
	if after.fds > before.fds+slackFds {
		return fmt.Errorf("over %d generations the descriptors went from %d to %d", k.options.Reconciles, before.fds, after.fds)
	}
	if after.rss > 2*before.rss+slackRSS {
		return fmt.Errorf("over %d generations the memory went from %d to %d KiB", k.options.Reconciles, before.rss>>10, after.rss>>10)
	}
	return nil
}

// settled waits a little for descriptors that are about to be closed.
func (p *child) settled(ctx context.Context, before usage) (usage, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		u, err := p.usage()
		if err != nil || u.fds <= before.fds+slackFds {
			return u, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return p.usage() // whatever the machine did meanwhile
		}
	}
}

func (p *child) usage() (usage, error) {
	dir := filepath.Join("/proc", strconv.Itoa(p.Cmd.Process.Pid))
	fds, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		return usage{}, skipf("its descriptors cannot be read: %v", err)
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return usage{}, skipf("its memory cannot be read: %v", err)
	}
	u := usage{fds: len(fds)}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, _ := strconv.Atoi(strings.Fields(rest)[0])
			u.rss = kib << 10
		}
	}
	return u, nil
}

func endsOnSigterm(ctx context.Context, k *kit) error {
	if err := k.open(ctx, several(1)); err != nil {
		return err
	}
	e, err := k.watch(ctx)
	if err != nil {
		return err
	}
	defer e.stop()
	if _, err := e.first(); err != nil {
		return err
	}
	start := time.Now()
	if !k.peer.proc.stop() {
		return fmt.Errorf("it runs %v after SIGTERM", stopTime)
	}
	k.note("ended in %v", time.Since(start).Round(time.Millisecond))
	return nil
}
