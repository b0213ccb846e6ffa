package health

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/await"
)

// kept is a file as a process leaves it behind in which one check passed.
func kept(t *testing.T, boot string, saved time.Time) (path string, in Instance) {
	t.Helper()
	in = Instance{Key: keyOf("a"), Addr: listen, Checks: []Check{{Kind: TCP, Interval: time.Minute}, {Kind: TCP, Interval: time.Minute}}}
	tb := newTable(memory{})
	tb.set([]Instance{in}, epoch, half)
	probeAll(tb, epoch.Add(time.Second), pass)
	path = filepath.Join(t.TempDir(), "health.json")
	if err := tb.remember(boot, saved).save(path); err != nil {
		t.Fatal(err)
	}
	return path, in
}

func TestWhatPassedIsBelieved(t *testing.T) {
	for _, test := range []struct {
		name string
		boot string
		age  time.Duration
		want bool
	}{
		{"at once", "boot", 0, true},
		{"just in time", "boot", KeepFor, true},
		{"too old", "boot", KeepFor + time.Millisecond, false},
		{"from the future", "boot", -time.Minute, false},
		{"after a reboot", "other", 0, false},
		{"of an unknown boot", "", 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			path, in := kept(t, "boot", epoch)
			m, err := loadMemory(path, test.boot)
			if err != nil {
				t.Fatal(err)
			}
			tb := newTable(m)
			now := epoch.Add(test.age)
			tb.set([]Instance{in}, now, half)
			checkTable(t, tb)
			if got := tb.instances[in.Key].passing(); got != test.want {
				t.Fatalf("passing is %v, want %v", got, test.want)
			}
			// Its first probes say otherwise.
			probeAll(tb, now.Add(time.Second), fail)
			if tb.instances[in.Key].passing() {
				t.Errorf("it passes after failed probes")
			}
		})
	}
}

func TestWhatPassedIsBelievedOnce(t *testing.T) {
	path, in := kept(t, "boot", epoch)
	m, err := loadMemory(path, "boot")
	if err != nil {
		t.Fatal(err)
	}
	tb := newTable(m)
	tb.set([]Instance{in}, epoch, half)
	tb.set(nil, epoch, half)
	tb.set([]Instance{in}, epoch, half)
	if tb.instances[in.Key].passing() {
		t.Errorf("taken out and set again, it passes unprobed")
	}
}

func TestAChangedInstanceIsNotBelieved(t *testing.T) {
	path, in := kept(t, "boot", epoch)
	m, err := loadMemory(path, "boot")
	if err != nil {
		t.Fatal(err)
	}
	in.Addr = closedPort(t)
	tb := newTable(m)
	tb.set([]Instance{in}, epoch, half)
	if tb.instances[in.Key].passing() {
		t.Errorf("at another address it passes unprobed")
	}
}

func TestADamagedFileIsWarnedOfAndReplaced(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "cut": `{"version":1,"boot_id":"`, "noise": "\x00\xff\x17", "another version": `{"version":9}`,
		"another shape": `{"version":1,"passing":["a"]}`,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "health.json")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			r := start(t, Config{Path: path, Log: slog.New(slog.NewTextHandler(&log, nil))})
			r.Set([]Instance{{Key: keyOf("a"), Addr: listen, Checks: []Check{{Kind: TCP, Interval: time.Hour}}}})
			if s, _ := r.State(keyOf("a")); s.Passing {
				t.Errorf("it passes unprobed")
			}
			r.Close()
			if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), path) {
				t.Errorf("the log is %q, want a warning that names %s", log.String(), path)
			}
			if _, err := loadMemory(path, readBootID()); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

func TestAFileThatCannotBeReadOrWrittenStopsNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nowhere", "health.json")
	w := newWaiter()
	var log bytes.Buffer
	r := start(t, Config{Path: path, OnChange: w.onChange, Log: slog.New(slog.NewTextHandler(&log, nil))})
	r.Set([]Instance{{Key: keyOf("a"), Addr: listen}})
	w.until(t, r, keyOf("a"), true)
	r.Close()
	if n := strings.Count(log.String(), "level=WARN"); n != 1 {
		t.Errorf("the log has %d warnings, want 1:\n%s", n, log.String())
	}
}

func TestHealthOutlivesTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "health.json")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	list := []Instance{
		{Key: keyOf("up"), Addr: netip.MustParseAddrPort(l.Addr().String()), Checks: []Check{lenient(Check{Kind: TCP, Interval: MinInterval})}},
		{Key: keyOf("down"), Addr: closedPort(t), Checks: []Check{{Kind: TCP, Interval: MinInterval}}},
	}
	w := newWaiter()
	r := start(t, Config{Path: path, OnChange: w.onChange})
	r.Set(list)
	w.until(t, r, keyOf("up"), true)
	await.For(t, "the file, written while the process runs", func() bool {
		text, err := os.ReadFile(path)
		var m memory
		return err == nil && json.Unmarshal(text, &m) == nil && len(m.Passing) == 1
	})
	r.Close()

	// One that is closed before it knows its instances leaves the file alone.
	start(t, Config{Path: path}).Close()

	for i := range list {
		list[i].Checks = []Check{{Kind: TCP, Interval: time.Hour}} // so that a second probe does not come
	}
	r = start(t, Config{Path: path})
	r.Set(list)
	if all := r.States(); !all[keyOf("up")].Passing || all[keyOf("down")].Passing {
		t.Errorf("after a restart it is %+v", all)
	}
	r.Close()

	_ = l.Close() // a first probe may come at once
	later := func() time.Time { return time.Now().Add(KeepFor + time.Minute) }
	r = start(t, Config{Path: path, Now: later})
	r.Set(list)
	if all := r.States(); all[keyOf("up")].Passing {
		t.Errorf("after a long stop it is %+v", all)
	}
}

func FuzzMemory(f *testing.F) {
	f.Add([]byte(`{"version":1,"boot_id":"b","saved":"2026-01-01T00:00:00Z","passing":{"default/web/a":["tcp 127.0.0.1:9001 at 127.0.0.1:9001: "]}}`))
	f.Add([]byte(`{"version":1,"boot_id":"b","passing":{"default/web/a":null}}`))
	path := filepath.Join(f.TempDir(), "health.json")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := loadMemory(path, "b")
		if err != nil && m.Passing != nil {
			t.Errorf("an error and a memory: %+v", m)
		}
		tb := newTable(m)
		tb.set([]Instance{{Key: keyOf("a"), Addr: listen, Checks: []Check{{Kind: TCP, Interval: time.Second}}}}, epoch, half)
		checkTable(t, tb)
	})
}
