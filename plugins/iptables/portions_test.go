package iptables

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/iptables/internal/host"
	"github.com/fairlead/fairlead/test/netns"
	"github.com/fairlead/fairlead/test/runnable"
)

// TestSlowTables: what takes longer than a call has time gets done all the same: each
// call goes on where the one before had to stop.
func TestSlowTables(t *testing.T) {
	eachVariant(t, func(t *testing.T, v host.Variant) {
		dir := t.TempDir()
		script := fmt.Sprintf(`#!/bin/sh
text=$(cat)
if [ "$(echo "$text" | wc -l)" -gt 1500 ]; then sleep 3600; fi
echo "$text" | /usr/sbin/iptables-%s-restore "$@"
`, v)
		for _, name := range []string{"iptables-restore", "iptables-" + string(v) + "-restore"} {
			if err := runnable.Write(filepath.Join(dir, name), []byte(script)); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
		w := newWorld(t, v)
		services := crowd(900, 1)
		endpoint := listenTCP(t, "127.0.0.1:0", "a")
		services[899] = service("crowd00899", services[899].Frontends, endpoint)
		next := w.snapshot(services...)
		calls := 0
		netns.EventuallyNil(t, 3*time.Minute, func() error {
			calls++
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_, err := w.provider.Reconcile(ctx, next, dataplane.Delta{})
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("call %d: %v", calls, err)
			}
			return err
		}, "900 services to be programmed")
		if calls < 2 {
			t.Error("the first call had time enough: this tests nothing")
		}
		t.Logf("%d calls", calls)
		answers(t, services[899].Frontends[0].Addr.String(), "a")
		w.now = next
		if r := w.apply(services...); r.Operations != 0 {
			t.Errorf("told the same again it made %d operations", r.Operations)
		}
		// Cleanup gets one text, which the slow restore would not take either.
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
}
