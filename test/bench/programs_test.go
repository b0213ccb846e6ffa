package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/test/netns"
)

// fairlead runs the agent as it is installed: profile lan, a data directory,
// all its listeners.
type fairlead struct {
	binary string
	dir    string // for data and sockets
}

func (fairlead) String() string { return "fairlead" }

func (f fairlead) start(node *netns.Node, name string, bind, seed netip.AddrPort) *netns.Process {
	args := []string{
		"agent", "--node.name", name, "--node.data_dir", filepath.Join(f.dir, name), "--node.advertise", bind.Addr().String(),
		"--cluster.name", "bench", "--gossip.bind", bind.String(), "--gossip.profile", "lan", "--dataplane", "off",
		"--api.socket", f.socket(name), "--api.listen", netip.AddrPortFrom(bind.Addr(), 7402).String(),
		"--http.listen", netip.AddrPortFrom(bind.Addr(), 7403).String(),
	}
	if seed.IsValid() {
		args = append(args, "--cluster.join", seed.String())
	}
	return node.Start(f.binary, args)
}

func (f fairlead) socket(name string) string { return filepath.Join(f.dir, name+".sock") }

// ask calls the API of one agent.
func (f fairlead) ask(name string, do func(context.Context, *client.Client) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := client.Dial(ctx, f.socket(name))
	if err != nil {
		return err
	}
	defer c.Close()
	return do(ctx, c)
}

func (f fairlead) up(_ *netns.Process, name string) (at time.Time, err error) {
	err = f.ask(name, func(ctx context.Context, c *client.Client) error {
		status, err := c.Status(ctx)
		at = status.Started
		return err
	})
	return at, err
}

func (f fairlead) history(_ *netns.Process, name string) ([]change, error) {
	var out []change
	err := f.ask(name, func(ctx context.Context, c *client.Client) error {
		for e, err := range c.Events(ctx, 0, false) {
			switch {
			case err != nil:
				return err
			case e.Resync:
				return errors.New("its first events are no longer held")
			}
			switch e.Kind {
			case "joined", "revived":
				out = append(out, change{e.At, true, e.Member.Name})
			case "died", "left":
				out = append(out, change{e.At, false, e.Member.Name})
			}
		}
		return nil
	})
	return out, err
}

// memberlist runs memberlistpeer.
type memberlist struct {
	binary string
	probe  time.Duration // 0: the library's own
}

func (memberlist) String() string { return "memberlist" }

func (m memberlist) start(node *netns.Node, name string, bind, seed netip.AddrPort) *netns.Process {
	args := []string{"-name", name, "-bind", bind.String()}
	if m.probe != 0 {
		args = append(args, "-probe", m.probe.String())
	}
	if seed.IsValid() {
		args = append(args, "-join", seed.String())
	}
	return node.Start(m.binary, args)
}

// up is the time of its first line, about itself.
func (m memberlist) up(p *netns.Process, name string) (time.Time, error) {
	history, err := m.history(p, name)
	if err != nil {
		return time.Time{}, err
	}
	return history[0].at, nil
}

// history reads what the process has printed.
func (m memberlist) history(p *netns.Process, _ string) ([]change, error) {
	var out []change
	for line := range strings.Lines(p.Output()) {
		if !strings.HasSuffix(line, "\n") {
			break // half-written
		}
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return nil, fmt.Errorf("printed %q", line)
		}
		nano, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("printed %q: %w", line, err)
		}
		out = append(out, change{time.Unix(0, nano), fields[1] == "up", fields[2]})
	}
	if out == nil {
		return nil, errors.New("has printed nothing yet")
	}
	return out, nil
}
