// Command memberlistpeer is the least program around
// hashicorp/memberlist: one member with the library's LAN defaults, that prints
// when it saw whom come and go. The benchmark runs it beside the agent.
//
//	memberlistpeer -name p2 -bind 127.0.0.2:7400 -join 127.0.0.1:7400
//
// Each line is `nanoseconds up|down name`, the first number since the Unix epoch.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hashicorp/memberlist"
)

// joinRetry is the pause between attempts while the seed does not answer. It
// is that of the agent, so that both lose the same time to a late seed.
const joinRetry = time.Second

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "memberlistpeer:", err)
		os.Exit(1)
	}
}

func run() error {
	name := flag.String("name", "", "`NAME` of this member")
	bind := flag.String("bind", "", "`ip:port` to bind and advertise")
	join := flag.String("join", "", "`ip:port` of a member to join, or nothing")
	probe := flag.Duration("probe", 0, "probe interval other than the library's, for tests of the benchmark itself")
	flag.Parse()
	addr, err := netip.ParseAddrPort(*bind)
	if err != nil || *name == "" {
		return errors.Join(errors.New("-name and -bind are needed"), err)
	}

	cfg := memberlist.DefaultLANConfig()
	cfg.Name = *name
	cfg.BindAddr, cfg.BindPort = addr.Addr().String(), int(addr.Port())
	cfg.AdvertiseAddr, cfg.AdvertisePort = cfg.BindAddr, cfg.BindPort
	if *probe != 0 {
		cfg.ProbeInterval, cfg.ProbeTimeout = *probe, *probe/2
	}
	cfg.LogOutput = io.Discard
	cfg.Events = printer{}
	list, err := memberlist.Create(cfg)
	if err != nil {
		return err
	}

	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, os.Interrupt)
	if *join != "" {
		retry := time.NewTicker(joinRetry)
		defer retry.Stop()
		for joined := false; !joined; {
			if n, err := list.Join([]string{*join}); err == nil && n > 0 {
				joined = true
				continue
			}
			select {
			case <-retry.C:
			case <-stop:
				return list.Shutdown()
			}
		}
	}
	<-stop
	return list.Shutdown()
}

// printer implements memberlist.EventDelegate.
type printer struct{}

func (printer) NotifyJoin(n *memberlist.Node)   { say("up", n) }
func (printer) NotifyLeave(n *memberlist.Node)  { say("down", n) }
func (printer) NotifyUpdate(n *memberlist.Node) {}

func say(what string, n *memberlist.Node) {
	fmt.Printf("%d %s %s\n", time.Now().UnixNano(), what, n.Name)
}
