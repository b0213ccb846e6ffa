package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/core/model"
)

const (
	localNodes   = 3
	startTimeout = 20 * time.Second
	// stopTimeout is above shutdown_timeout of the agents; what still runs
	// then is killed.
	stopTimeout = 8 * time.Second
)

// localCluster is a few agents on loopback, each a child process with its
// files in a directory named after it.
type localCluster struct {
	env     Env
	dir     string
	exe     string
	spawner *spawner
	nodes   []*localNode
}

type localNode struct {
	name   string
	socket string
	log    string // path
	cmd    *exec.Cmd
	done   chan struct{} // closed when the process has ended
	err    error         // of cmd.Wait; read after done
}

// startLocalCluster starts the agents and returns when each sees all alive.
// The caller stops it, also after an error.
func startLocalCluster(ctx context.Context, env Env, dir string) (*localCluster, error) {
	c := &localCluster{env: env, dir: dir, spawner: newSpawner()}
	var err error
	if c.exe, err = env.Executable(); err != nil {
		return c, fmt.Errorf("find this program: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()

	join := "[]"
	for i := range localNodes {
		node, err := c.start(fmt.Sprintf("n%d", i+1), join)
		if err != nil {
			return c, err
		}
		if i > 0 {
			continue
		}
		// The first has any free port; the others need to know which.
		err = node.ask(ctx, func(api *client.Client) (bool, error) {
			status, err := api.Status(ctx)
			join = fmt.Sprintf("[%q]", status.Addr)
			return err == nil, err
		})
		if err != nil {
			return c, err
		}
	}
	return c, c.awaitAlive(ctx)
}

// start writes the files of one agent and starts it.
func (c *localCluster) start(name, join string) (*localNode, error) {
	dir := filepath.Join(c.dir, name)
	n := &localNode{
		name:   name,
		socket: filepath.Join(dir, "api.sock"),
		log:    filepath.Join(dir, "agent.log"),
		done:   make(chan struct{}),
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "fairlead.yaml")
	if err := os.WriteFile(file, []byte(localConfig(name, dir, n.socket, join)), 0o600); err != nil {
		return nil, err
	}
	logFile, err := os.OpenFile(n.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer logFile.Close() // the child has its own descriptor

	n.cmd = exec.Command(c.exe, "agent", "--config", file)
	n.cmd.Dir = dir
	n.cmd.Env = withoutFairlead(c.env.Environ)
	n.cmd.Stdout, n.cmd.Stderr = logFile, logFile
	if err := c.spawner.start(n.cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		n.err = n.cmd.Wait()
		close(n.done)
	}()
	c.nodes = append(c.nodes, n)
	return n, nil
}

func localConfig(name, dir, socket, join string) string {
	return fmt.Sprintf(`node: {name: %s, data_dir: %q}
cluster: {name: dev, join: %s}
gossip: {bind: "127.0.0.1:0", profile: local}
api: {socket: %q, listen: "off"}
http: {listen: "127.0.0.1:0"}
log: {level: info, format: text}
shutdown_timeout: 5s
`, name, filepath.Join(dir, "data"), join, socket)
}

// withoutFairlead drops variables that would configure the agents otherwise.
func withoutFairlead(environ []string) []string {
	var out []string
	for _, entry := range environ {
		if !strings.HasPrefix(entry, "FAIRLEAD_") {
			out = append(out, entry)
		}
	}
	return out
}

// awaitAlive waits until each agent sees all of them alive.
func (c *localCluster) awaitAlive(ctx context.Context) error {
	for _, n := range c.nodes {
		err := n.ask(ctx, func(api *client.Client) (bool, error) {
			members, err := api.Members(ctx)
			alive := 0
			for _, m := range members {
				if m.State == model.StateAlive {
					alive++
				}
			}
			return alive == len(c.nodes), err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// members asks the first agent.
func (c *localCluster) members(ctx context.Context) ([]client.Member, error) {
	api, err := client.Dial(ctx, c.nodes[0].socket)
	if err != nil {
		return nil, err
	}
	defer api.Close()
	return api.Members(ctx)
}

// ask calls until it is answered with true; until then errors are expected.
func (n *localNode) ask(ctx context.Context, answered func(*client.Client) (bool, error)) error {
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	var last error
	for {
		api, err := client.Dial(ctx, n.socket)
		if err == nil {
			var ok bool
			ok, err = answered(api)
			_ = api.Close()
			if ok {
				return nil
			}
		}
		if err != nil && ctx.Err() == nil {
			last = err
		}
		select {
		case <-n.done:
			return fmt.Errorf("agent %s ended while starting (%w); its log:\n%s", n.name, exitReason(n.err), tail(n.log))
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return ctx.Err()
			}
			return fmt.Errorf("agent %s was not ready in time (%w); its log:\n%s", n.name, errors.Join(ctx.Err(), last), tail(n.log))
		case <-poll.C:
		}
	}
}

// running reports whether the process has not ended.
func (n *localNode) running() bool {
	select {
	case <-n.done:
		return false
	default:
		return true
	}
}

// stop asks all agents to leave, then kills what still runs, and returns when
// no process is left.
func (c *localCluster) stop() {
	for _, n := range c.nodes {
		if n.running() {
			_ = n.cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	late := time.NewTimer(stopTimeout)
	defer late.Stop()
	for _, n := range c.nodes {
		select {
		case <-n.done:
		case <-late.C:
			late.Reset(0)
			_ = n.cmd.Process.Kill()
			<-n.done
		}
	}
	c.spawner.close()
}

func exitReason(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// tail returns the last lines of a log.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-10):], "\n")
}
