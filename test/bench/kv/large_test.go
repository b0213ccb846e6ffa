package kv

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// large measures clusters of many keys: the time to put them, the memory
// that they take, and how soon a cluster that was killed answers again.
func (b *bench) large(out *strings.Builder) {
	b.t.Helper()
	const clients = 256
	for _, c := range b.running { // memory and CPUs for these
		c.kill()
	}
	b.running = nil
	load := &figure{name: fmt.Sprintf("putting them by %d clients, s", clients), format: "%.1f"}
	total := &figure{name: "leader: resident MiB", format: "%.0f", bar: 0.8}
	anon, file := &figure{name: "  anonymous", format: "%.0f"}, &figure{name: "  of files", format: "%.0f"}
	three := &figure{name: "all members: resident MiB", format: "%.0f"}
	restart := &figure{name: "all killed and started: first linearizable read, s", format: "%.2f", bar: 1, limit: 5}
	later := &figure{name: "  then the leader: resident MiB", format: "%.0f"}
	laterAnon := &figure{name: "  of it anonymous", format: "%.0f"}
	var all []*cluster
	for _, s := range b.systems {
		if s.name == again {
			continue
		}
		c := b.newCluster(s)
		all = append(all, c)
		c.start()
		begun := time.Now()
		if err := c.fill(b.plan.large, clients); err != nil {
			b.t.Fatalf("%s: %v", c.name, err)
		}
		load.add(c.name, time.Since(begun).Seconds())
		pause(b.plan.window) // what is still being done after the last put
		m := memoryOf(b.t, c.members[c.leader()].cmd.Process.Pid)
		total.add(c.name, m.anon+m.file)
		anon.add(c.name, m.anon)
		file.add(c.name, m.file)
		sum := 0.0
		for _, o := range c.members {
			m := memoryOf(b.t, o.cmd.Process.Pid)
			sum += m.anon + m.file
		}
		three.add(c.name, sum)
		c.kill()
	}
	for round := range b.plan.restarts {
		for k := range all {
			c := all[(round+k)%len(all)]
			took, err := c.restart(key(b.plan.large - 1))
			if err != nil {
				b.t.Fatalf("%s: %v\n%s", c.name, err, c.said())
			}
			restart.add(c.name, took.Seconds())
			c.serving()
			pause(b.plan.window)
			m := memoryOf(b.t, c.members[c.leader()].cmd.Process.Pid)
			later.add(c.name, m.anon+m.file)
			laterAnon.add(c.name, m.anon)
			c.kill()
		}
	}
	b.show(out, fmt.Sprintf("%d keys", b.plan.large), load, total, anon, file, three, restart, later, laterAnon)
}

// restart starts all members and returns the time until one of them answers a
// linearizable read of a key that is there.
func (c *cluster) restart(key string) (time.Duration, error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*patience)
	defer cancel()
	begun := time.Now()
	for _, m := range c.members {
		m.start()
	}
	answers := make(chan error, servers)
	for i := range servers {
		go func() {
			for {
				err := c.ask(ctx, c.conns[i], key)
				if err == nil || ctx.Err() != nil {
					answers <- err
					return
				}
				pause(5 * time.Millisecond)
			}
		}()
	}
	err := <-answers
	took := time.Since(begun)
	cancel()
	for range servers - 1 {
		<-answers
	}
	return took, err
}

// ask is one read, given up after a second.
func (c *cluster) ask(ctx context.Context, on *conn, key string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return on.get(ctx, key, true, valueBytes)
}
