package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/fairlead/fairlead/core/api/client"
)

// TestStoreSecretStaysInside: the secret of the cluster is nowhere but in its file and
// in the memory of the agents that use it.
func TestStoreSecretStaysInside(t *testing.T) {
	t.Parallel()
	f := newStore(t, ours(t))
	secret := newSecret()
	for _, n := range f.nodes {
		n.secrets(secret)
		n.args = append(n.args, "--log.level", "debug")
	}
	first := f.nodes[0]
	first.install("l7", "l7")
	first.env = []string{"FAIRLEAD_DATAPLANE=l7", "FAIRLEAD_PLUGIN_DIRS=" + first.pluginDir()}
	f.upAll()
	f.eventually(20*time.Second, "a write", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := first.kv().Put(ctx, &pb.PutRequest{Key: []byte("key"), Value: []byte("value")})
		return err
	})
	var plugin int
	f.eventually(20*time.Second, "the plugin runs", func() error {
		return first.ask(func(ctx context.Context, c *client.Client) error {
			list, err := c.Plugins(ctx)
			for _, p := range list.Plugins {
				if p.PID != 0 {
					plugin = p.PID
					return nil
				}
			}
			return fmt.Errorf("none in %+v, %w", list, err)
		})
	})

	absent := func(where, text string) {
		t.Helper()
		if text == "" {
			t.Errorf("%s is empty: nothing was looked at", where)
		}
		if strings.Contains(text, secret) {
			t.Errorf("the secret is in %s", where)
		}
	}
	for _, of := range []struct {
		who string
		pid int
	}{{"the agent", first.proc.Pid()}, {"the plugin", plugin}} {
		for _, file := range []string{"cmdline", "environ"} {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", of.pid, file))
			if err != nil {
				t.Fatal(err)
			}
			absent(file+" of "+of.who, string(text))
			if of.who == "the plugin" && strings.Contains(string(text), "FAIRLEAD_CLUSTER") {
				t.Errorf("the plugin is told of the cluster: %q", text)
			}
		}
	}
	err := first.ask(func(ctx context.Context, c *client.Client) error {
		all, err := c.Config(ctx)
		absent("config show", fmt.Sprintf("%+v", all))
		return err
	})
	if err != nil {
		t.Error(err)
	}
	first.reload()
	for _, n := range f.nodes {
		absent("the log of "+n.name, n.proc.Output())
		err := filepath.WalkDir(n.dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			text, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				return nil // what is written anew has another name before
			}
			if strings.Contains(string(text), secret) {
				t.Errorf("the secret is in %s", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
