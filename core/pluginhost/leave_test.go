package pluginhost

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
	"github.com/fairlead/fairlead/test/await"
)

// stage is a rig with providers of which one takes the place of another.
type stage struct {
	*rig
	kernel  string // what they program
	events  string
	settled atomic.Bool // what is ready has all it should have
	left    chan string // calls of OnLeave
}

func newStage(t *testing.T, wish ...string) *stage {
	s := &stage{rig: newRig(t, wish...), kernel: t.TempDir(), events: filepath.Join(t.TempDir(), "events"), left: make(chan string, 100)}
	s.cfg.Settled = func(string) string {
		if s.settled.Load() {
			return ""
		}
		return "has no services yet"
	}
	s.cfg.OnLeave = func(name string) {
		s.left <- name
		s.note("host lets go of " + name)
	}
	s.settled.Store(true)
	return s
}

func (s *stage) note(line string) {
	f, err := os.OpenFile(s.events, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		s.t.Error(err)
		return
	}
	defer f.Close()
	if _, err := f.WriteString(line + "\n"); err != nil {
		s.t.Error(err)
	}
}

// provide installs a provider that programs a directory of its own.
func (s *stage) provide(name string, b behaviour) {
	s.t.Helper()
	b.Dir, b.Events = filepath.Join(s.kernel, name), s.events
	if err := os.MkdirAll(b.Dir, 0o700); err != nil {
		s.t.Fatal(err)
	}
	s.install(name, b)
}

// object puts something of a provider into the system, and returns where.
func (s *stage) object(name, instance string) string {
	s.t.Helper()
	path := filepath.Join(s.kernel, name, instance, "service.default%2Fweb")
	if err := errorsOf(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("x"), 0o600)); err != nil {
		s.t.Fatal(err)
	}
	return path
}

func there(path string) bool { _, err := os.Stat(path); return err == nil }

func (s *stage) waitGone(path string) {
	s.t.Helper()
	await.Until(s.t, func() string {
		if there(path) {
			return "the end of " + path + "\n" + s.log.String()
		}
		return ""
	})
}

// waitLeaves waits until the leaves of a host say this; nothing: until there is none.
func (s *stage) waitLeaves(h *Host, text string) {
	s.t.Helper()
	await.Until(s.t, func() string {
		_, leaves := h.Explain()
		switch {
		case text == "" && len(leaves) == 0:
			return ""
		case text != "" && slices.ContainsFunc(leaves, func(l Leave) bool { return strings.Contains(l.Reason, text) }):
			return ""
		}
		return "leaves with " + text + "\n" + s.log.String()
	})
}

// order fails unless the events have these lines in this order.
func (s *stage) order(lines ...string) {
	s.t.Helper()
	text, err := os.ReadFile(s.events)
	if err != nil {
		s.t.Fatal(err)
	}
	rest := string(text)
	for _, line := range lines {
		at := strings.Index(rest, line+"\n")
		if at < 0 {
			s.t.Errorf("%q does not come, or not in its turn:\n%s", line, text)
			return
		}
		rest = rest[at:]
	}
}

func (s *stage) ownedNames() []string {
	list, err := readOwned(s.cfg.StateDir)
	if err != nil {
		s.t.Fatal(err)
	}
	var out []string
	for _, o := range list {
		out = append(out, o.Name+"/"+o.Instance)
	}
	slices.Sort(out)
	return out
}

// At a restart with another wish the provider of before is cleaned, once that of now
// is at work and not before, whichever agent runs then.
func TestOtherWishAtRestart(t *testing.T) {
	s := newStage(t, "old")
	s.provide("old", behaviour{Pending: 2})
	s.provide("new", behaviour{})
	h := s.start()
	s.nextReady()
	h.Stop()
	path := s.object("old", "test")

	s.settled.Store(false)
	s.cfg.Wish.Names = []string{"new"}
	h = s.start()
	if p := s.nextReady(); p.Name != "new" {
		t.Fatalf("%s is ready", p.Name)
	}
	s.waitLeaves(h, "until new is at work in its place, which has no services yet")
	if st := statusOf(t, h, "old"); st.State != StateLeaving || !strings.Contains(st.Reason, "no services yet") {
		t.Errorf("it shows as %+v", st)
	}
	h.Stop() // as good as a crash: nothing is written down by it
	if got := s.ownedNames(); !slices.Equal(got, []string{"new/test", "old/test"}) || !there(path) {
		t.Fatalf("owned are %v", got)
	}

	s.settled.Store(true)
	h = s.start()
	s.nextReady()
	s.waitGone(path)
	s.waitLeaves(h, "")
	if got := s.ownedNames(); !slices.Equal(got, []string{"new/test"}) {
		t.Errorf("owned are %v", got)
	}
	s.order("new configure", "new configure", "old cleanup, lingering", "old cleanup, lingering", "old cleanup, lingering")
	if len(h.Status()) != 1 {
		t.Errorf("hosted are %+v", h.Status())
	}
}

// A provider that is not wanted any more while the agent runs serves until another
// one does; nobody tells it anything once it is cleaned, and its process ends.
func TestLiveSwitch(t *testing.T) {
	for _, test := range []struct {
		name     string
		settings map[string]Settings
	}{
		{"child", nil},
		{"that outlives the agent", map[string]Settings{"old": {Values: map[string]any{keyOnHostLoss: handshake.HostLossServe}}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStage(t, "old", "other")
			s.cfg.Settings = test.settings
			s.provide("old", behaviour{Pending: 1})
			s.provide("new", behaviour{})
			s.install("other", behaviour{Layers: []dataplane.Layer{dataplane.L7}})
			h := s.start()
			first, second := s.nextReady(), s.nextReady()
			if first.Name != "old" {
				first, second = second, first
			}
			path := s.object("old", "test")
			pid := statusOf(t, h, "old").PID

			s.settled.Store(false)
			if _, err := h.Rewish(t.Context(), Wish{Names: []string{"new", "other"}, Written: true}); err != nil {
				t.Fatal(err)
			}
			if p := s.nextReady(); p.Name != "new" {
				t.Fatalf("%s is ready", p.Name)
			}
			s.waitLeaves(h, "has no services yet")
			select {
			case <-first.Lost:
				t.Error("it is lost before another one took its place")
			default:
			}
			if !there(path) || statusOf(t, h, "old").State != StateReady {
				t.Errorf("it is %+v", statusOf(t, h, "old"))
			}
			s.settled.Store(true)
			waitClosed(t, first.Lost, "the end of its supervision")
			s.waitGone(path)
			s.waitLeaves(h, "")
			if alive(pid) {
				t.Errorf("process %d is there", pid)
			}
			if got := s.ownedNames(); !slices.Equal(got, []string{"new/test", "other/test"}) {
				t.Errorf("owned are %v", got)
			}
			s.order("old configure", "new configure", "host lets go of old", "old cleanup, lingering", "old cleanup, lingering")
			select {
			case <-second.Lost:
				t.Error("the one that stays was restarted")
			default:
			}
		})
	}
}

// While what was chosen does not run, what is there stays; whoever mends it has the
// switch.
func TestSwitchToOneThatFails(t *testing.T) {
	s := newStage(t, "old")
	s.provide("old", behaviour{})
	s.provide("new", behaviour{Mode: "dies"})
	h := s.start()
	old := s.nextReady()
	path := s.object("old", "test")
	if _, err := h.Rewish(t.Context(), Wish{Names: []string{"new"}, Written: true}); err != nil {
		t.Fatal(err)
	}
	s.waitLeaves(h, "cannot find my head")
	s.waitLog("plugin does not run")
	select {
	case <-old.Lost:
		t.Error("it is lost")
	default:
	}
	if !there(path) {
		t.Error("what it programmed is gone")
	}
	if err := os.WriteFile(behaviourPath(filepath.Join(s.dir, handshake.FilePrefix+"new")), []byte(`{}`), 0o644); err != nil {
		t.Fatal(err)
	}
	s.waitGone(path)
	s.waitLeaves(h, "")
}

// A wish that cannot be granted alters nothing.
func TestWishThatCannotBeGranted(t *testing.T) {
	s := newStage(t, "old")
	s.provide("old", behaviour{})
	s.provide("new", behaviour{Verdict: dataplane.Unsupported})
	h := s.start()
	old := s.nextReady()
	before := h.Decision()
	_, err := h.Rewish(t.Context(), Wish{Names: []string{"new"}, Written: true})
	if err == nil || !strings.Contains(err.Error(), "kernel-moon: no moon: wait for the night") {
		t.Errorf("error is %v", err)
	}
	if names(h.Decision()) != names(before) || len(h.Status()) != 1 {
		t.Errorf("chosen are %v", h.Decision())
	}
	select {
	case <-old.Lost:
		t.Error("it is lost")
	default:
	}
}

// Who changes their mind in time has what ran before, as it was.
func TestSwitchBack(t *testing.T) {
	s := newStage(t, "old")
	s.provide("old", behaviour{})
	s.provide("new", behaviour{})
	h := s.start()
	old := s.nextReady()
	path := s.object("old", "test")
	s.settled.Store(false)
	if _, err := h.Rewish(t.Context(), Wish{Names: []string{"new"}, Written: true}); err != nil {
		t.Fatal(err)
	}
	s.nextReady()
	gone := s.object("new", "test")
	s.waitLeaves(h, "no services yet")
	s.settled.Store(true) // old has all it should have; the leave of it may have begun
	if _, err := h.Rewish(t.Context(), Wish{Names: []string{"old"}, Written: true}); err != nil {
		t.Fatal(err)
	}
	s.waitGone(gone)
	s.waitLeaves(h, "")
	waitState(t, h, "old", StateReady)
	select {
	case name := <-s.left:
		if name == "new" { // it had not parted: the same process serves
			if !there(path) {
				t.Error("what it programmed is gone")
			}
			select {
			case <-old.Lost:
				t.Error("it is lost")
			default:
			}
		}
	case <-time.After(patience):
		t.Error("nobody let go of new")
	}
	if got := s.ownedNames(); !slices.Equal(got, []string{"old/test"}) {
		t.Errorf("owned are %v", got)
	}
}

// What lingers goes when the drain time is over.
func TestLeaveIsBounded(t *testing.T) {
	s := newStage(t, "old")
	s.provide("old", behaviour{Pending: 1 << 30})
	var passed atomic.Int64
	s.cfg.Now = func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }
	s.cfg.DrainTime = func() time.Duration { return time.Hour }
	h := s.start()
	s.nextReady()
	path := s.object("old", "test")
	if _, err := h.Rewish(t.Context(), Wish{}); err != nil {
		t.Fatal(err)
	}
	s.waitLeaves(h, "connections under way need it: two connections")
	await.For(t, "a second try", func() bool {
		text, err := os.ReadFile(s.events)
		return err == nil && strings.Count(string(text), "old cleanup, lingering\n") >= 2
	})
	if !there(path) {
		t.Error("it is gone before its time")
	}
	passed.Store(int64(time.Hour))
	s.waitGone(path)
	s.waitLeaves(h, "")
	s.order("old cleanup, lingering", "old cleanup, lingering", "old cleanup")
}

// What another boot, another instance id or a plugin that was removed left is
// cleaned, as soon as that is possible.
func TestLeavesOfOthers(t *testing.T) {
	s := newStage(t, "new")
	s.provide("new", behaviour{})
	s.provide("old", behaviour{Mode: "call-cleanup-fails"})
	paths := []string{s.object("old", "test"), s.object("new", "before")}
	mine := s.object("new", "test")
	text := `[{"name": "old", "instance": "test"}, {"name": "new", "instance": "before", "layers": [1]}, {"name": "missing", "instance": "test"}]`
	if err := errorsOf(os.MkdirAll(s.cfg.StateDir, 0o700), os.WriteFile(filepath.Join(s.cfg.StateDir, ownedFile), []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	h := s.start()
	s.nextReady()
	s.waitGone(paths[1])
	s.waitLeaves(h, "the broom is broken")
	s.waitLeaves(h, "install fairlead-dataplane-missing")
	if !there(paths[0]) || !there(mine) {
		t.Error("too much is gone")
	}
	s.provide("old", behaviour{})
	s.waitGone(paths[0])
	s.install("missing", behaviour{})
	s.waitLeaves(h, "")
	if got := s.ownedNames(); !slices.Equal(got, []string{"new/test"}) || !there(mine) {
		t.Errorf("owned are %v", got)
	}
}

// What auto does not choose as nobody could ask it keeps what it programmed, unless
// another one takes its place.
func TestAutoSparesWhatItCannotJudge(t *testing.T) {
	s := newStage(t, Auto)
	s.cfg.Wish.Written = false
	s.provide("ebpf", behaviour{})
	h := s.start()
	s.nextReady()
	h.Stop()
	path := s.object("ebpf", "test")

	s.provide("ebpf", behaviour{Verdict: dataplane.Inconclusive})
	if err := os.Remove(filepath.Join(s.cfg.StateDir, choiceFile)); err != nil {
		t.Fatal(err)
	}
	h = s.start()
	if _, leaves := h.Explain(); len(leaves) != 0 || !there(path) || names(h.Decision()) != "" {
		t.Errorf("leaves: %v, chosen: %s", leaves, names(h.Decision()))
	}
	s.waitLog("auto passes over ebpf, of which nobody knows")
	h.Stop()

	s.provide("iptables", behaviour{})
	h = s.start()
	if p := s.nextReady(); p.Name != "iptables" {
		t.Errorf("%s runs", p.Name)
	}
	s.waitGone(path)
	s.waitLeaves(h, "")
}

// A list that cannot be read is said, and stops nothing.
func TestOwnedIsDamaged(t *testing.T) {
	s := newStage(t, "good")
	s.provide("good", behaviour{})
	if err := os.WriteFile(filepath.Join(s.cfg.StateDir, ownedFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.start()
	s.nextReady()
	s.waitLog("fairlead cleanup")
	if got := s.ownedNames(); !slices.Equal(got, []string{"good/test"}) {
		t.Errorf("owned are %v", got)
	}
	if _, err := readOwned(filepath.Join(s.cfg.StateDir, ownedFile)); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("error is %v", err)
	}
}
