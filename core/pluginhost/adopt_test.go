package pluginhost

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
	"github.com/fairlead/fairlead/test/await"
)

// alone starts a provider that runs by itself on a socket.
func (r *rig) alone(name, socket string, args ...string) *exec.Cmd {
	r.t.Helper()
	path := install(r.t, r.t.TempDir(), name, behaviour{})
	cmd := exec.Command(path, append([]string{"--listen", "unix:" + socket}, args...)...)
	cmd.Stderr = r.log
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	await.Until(r.t, func() string {
		c, err := net.Dial("unix", socket)
		if err != nil {
			return "an answer at " + socket + ": " + err.Error()
		}
		_ = c.Close()
		return ""
	})
	return cmd
}

// A provider that runs by itself is adopted, never ended, and found again after
// it was replaced.
func TestAloneIsAdoptedAndLeftAlone(t *testing.T) {
	for _, where := range []string{"configured", "run directory"} {
		t.Run(where, func(t *testing.T) {
			r := newRig(t, "good")
			r.cfg.Environ = append(r.cfg.Environ, "HTTPS_PROXY=http://127.0.0.1:1")
			t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
			socket := filepath.Join(r.cfg.RunDir, "good.sock")
			if where == "configured" {
				socket = filepath.Join(shortDir(t), "x.sock")
				r.cfg.Settings = map[string]Settings{"good": {Values: map[string]any{keySocket: "unix:" + socket}}}
			}
			cmd := r.alone("good", socket)
			h := r.start()
			if p := r.nextReady(); p.Kind != KindAlone {
				t.Errorf("kind is %s", p.Kind)
			}
			if s := statusOf(t, h, "good"); s.PID != 0 {
				t.Errorf("status is %+v", s)
			}
			if err := h.Restart("good", "test"); err != nil {
				t.Fatal(err)
			}
			p := r.nextReady()
			if where == "configured" {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
				waitClosed(t, p.Lost, "the loss")
				r.waitLog("waiting for a provider that runs by itself")
				cmd = r.alone("good", socket)
				r.nextReady()
			}
			h.Stop()
			if !alive(cmd.Process.Pid) {
				t.Error("it was ended")
			}
		})
	}
}

func TestAloneThatIsNotThereIsNoCrash(t *testing.T) {
	r := newRig(t, "good")
	socket := filepath.Join(shortDir(t), "x.sock")
	r.cfg.Settings = map[string]Settings{"good": {Values: map[string]any{keySocket: socket}}}
	h := r.start()
	s := waitState(t, h, "good", StateBackoff)
	if !strings.Contains(s.Reason, "nobody answers at "+socket) || s.Losses != 0 {
		t.Errorf("status is %+v", s)
	}
}

func (r *rig) serving() {
	r.cfg.Settings = map[string]Settings{"good": {Values: map[string]any{keyOnHostLoss: handshake.HostLossServe}}}
}

// A child that is to outlive the agent is left by one and adopted by the next;
// it is ours, so a restart ends it.
func TestKeptChildIsAdopted(t *testing.T) {
	r := newRig(t, "good")
	r.install("good", behaviour{})
	r.serving()
	h := r.start()
	p := r.nextReady()
	pid := statusOf(t, h, "good").PID
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL); reapChild(pid) }()
	h.Stop()
	waitClosed(t, p.Lost, "the end of the life")

	h = r.start()
	p = r.nextReady()
	if s := statusOf(t, h, "good"); p.Kind != KindKept || s.PID != pid {
		t.Fatalf("adopted %v, pid %d, of before %d", p.Kind, s.PID, pid)
	}
	go reapChild(pid)
	if err := h.Restart("good", "test"); err != nil {
		t.Fatal(err)
	}
	p = r.nextReady()
	s := statusOf(t, h, "good")
	if p.Kind != KindChild || s.PID == pid {
		t.Errorf("after the restart it is %v, pid %d, of before %d", p.Kind, s.PID, pid)
	}
	// Its log outlives the agent, too.
	if text, err := os.ReadFile(logPath(h.run, "good")); err != nil || !strings.Contains(string(text), "host") {
		t.Errorf("log: %q, %v", text, err)
	}
	// Not chosen any more, it is ended.
	h.Stop()
	go reapChild(s.PID)
	r.cfg.Wish = Wish{}
	r.start()
	if alive(s.PID) {
		t.Errorf("process %d, which nobody chose, lives on", s.PID)
	}
}

// reapChild takes the status of a child that a Host let go of: here it is still
// a child of the test, and would stay a zombie.
func reapChild(pid int) { _, _ = syscall.Wait4(pid, nil, 0, nil) }

func TestKeptChildThatHangsIsReplaced(t *testing.T) {
	r := newRig(t, "good")
	r.install("good", behaviour{})
	r.serving()
	r.cfg.Timing.Call = time.Second
	h := r.start()
	r.nextReady()
	pid := statusOf(t, h, "good").PID
	h.Stop()
	kill(t, pid, syscall.SIGSTOP)
	go reapChild(pid)
	h = r.start()
	if p := r.nextReady(); p.Kind != KindChild {
		t.Errorf("kind is %v", p.Kind)
	}
	s := statusOf(t, h, "good")
	h.Stop()
	kill(t, s.PID, syscall.SIGKILL)
	reapChild(s.PID)
}

// A record with the number of a process that is another one harms nobody, and
// does not keep the plugin from its start.
func TestForgedRecordHarmsNobody(t *testing.T) {
	r := newRig(t, "good")
	r.install("good", behaviour{})
	r.serving()
	bystander := exec.Command("/bin/sleep", "1000")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bystander.Process.Kill(); _ = bystander.Wait() }()
	boot, err := bootID()
	if err != nil {
		t.Fatal(err)
	}
	began, err := beganAt(bystander.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range []record{
		{Name: "good", PID: bystander.Process.Pid, Began: began + 1, Boot: boot, Socket: filepath.Join(r.cfg.RunDir, "good.sock"), Serve: true},
		{Name: "good", PID: bystander.Process.Pid, Began: began - 1, Boot: boot, Socket: filepath.Join(r.cfg.RunDir, "good.sock")},
		{Name: "good", PID: bystander.Process.Pid, Began: began, Boot: "another", Socket: filepath.Join(r.cfg.RunDir, "good.sock")},
		{Name: "good", PID: 1, Began: 0, Boot: boot},
	} {
		if err := writeRecord(r.cfg.RunDir, rec); err != nil {
			t.Fatal(err)
		}
		h := r.start()
		if p := r.nextReady(); p.Kind != KindChild {
			t.Errorf("kind is %v", p.Kind)
		}
		pid := statusOf(t, h, "good").PID
		h.Stop()
		kill(t, pid, syscall.SIGKILL)
		reapChild(pid)
		if !alive(bystander.Process.Pid) {
			t.Fatal("the bystander was ended")
		}
	}
}

// What an agent before left is ended, if it should have ended with it.
func TestLeftoverChildIsEnded(t *testing.T) {
	r := newRig(t, "good")
	r.install("good", behaviour{})
	leftover := exec.Command("/bin/sleep", "1000")
	leftover.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := leftover.Start(); err != nil {
		t.Fatal(err)
	}
	rec, err := newRecord("other", leftover.Process.Pid, "/nowhere", false)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeRecord(r.cfg.RunDir, rec); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.cfg.RunDir, "broken.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	reaped := make(chan struct{})
	go func() { defer close(reaped); _ = leftover.Wait() }()
	r.start()
	r.nextReady()
	waitClosed(t, reaped, "the end of what was left")
	r.waitLog("ended plugins that an agent before this one left")
	for _, name := range []string{"other.json", "broken.json"} {
		if _, err := os.Stat(filepath.Join(r.cfg.RunDir, name)); err == nil {
			t.Errorf("%s is left", name)
		}
	}
}

// A socket of somebody else is not talked to.
func TestSocketOfAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to serve as another user")
	}
	r := newRig(t, "good")
	dir := shortDir(t)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "x.sock")
	listeners := make(chan net.Listener)
	go func() {
		// Credentials belong to threads, and this one ends with the goroutine.
		runtime.LockOSThread()
		_, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, 65534, 65534, 65534)
		l, err := net.Listen("unix", socket)
		if errno != 0 || err != nil {
			t.Errorf("listen as another user: %v, %v", errno, err)
		}
		listeners <- l
	}()
	l := <-listeners
	if l == nil {
		t.FailNow()
	}
	defer l.Close()
	r.cfg.Settings = map[string]Settings{"good": {Values: map[string]any{keySocket: socket}}}
	f := r.find("good")
	if f.Err == nil {
		t.Fatal("it is talked to")
	}
	if !strings.Contains(f.Err.Error(), "served by user 65534") {
		t.Errorf("error is %v", f.Err)
	}
}

// find asks a host of its own.
func (r *rig) find(name string) Finding {
	r.t.Helper()
	h, err := New(r.cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	defer h.Stop()
	return h.Find(r.t.Context(), name)
}

// The connection breaks and the socket is gone, and the process knows nothing
// of it: it is replaced.
func TestUnreachableChildIsReplaced(t *testing.T) {
	r := newRig(t, "good")
	r.install("good", behaviour{})
	h := r.host()
	i, err := h.open(t.Context(), "good", false)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(i.child.socket); err != nil {
		t.Fatal(err)
	}
	_ = i.conn.Close()
	waitClosed(t, i.lost, "the loss")
	if !strings.Contains(i.cause, "connection broke") {
		t.Errorf("cause is %s", i.cause)
	}
	i.kill()
	gone(t, i.proc.pid)
}

// What a kept child leaves in its process group ends with it, as with a child of
// our own; what else lives does not.
func TestGroupOfKeptChildEndsWithIt(t *testing.T) {
	r := newRig(t, "good")
	out := t.TempDir() + "/pid"
	r.install("good", behaviour{Mode: "grandchild", Out: out})
	r.serving()
	h := r.start()
	r.nextReady()
	pid := statusOf(t, h, "good").PID
	h.Stop()
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	grandchild, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(grandchild, syscall.SIGKILL) }()

	r.install("good", behaviour{}) // the next one has no children
	h = r.start()
	p := r.nextReady()
	if p.Kind != KindKept || !alive(grandchild) {
		t.Fatalf("adopted %v, the grandchild lives: %v", p.Kind, alive(grandchild))
	}
	kill(t, pid, syscall.SIGKILL)
	waitClosed(t, p.Lost, "the loss")
	await.Until(t, func() string {
		reapChild(pid)
		if alive(grandchild) {
			return "the end of the grandchild"
		}
		return ""
	})
	r.nextReady()
	h.Stop()
	r.endKept()
}

// A child that outlives an agent which loses its data directory, and so its
// identity, keeps the tag of what it made, over its own restarts, too.
func TestKeptChildKeepsItsInstanceID(t *testing.T) {
	r := newRig(t, "good")
	r.install("good", behaviour{})
	r.serving()
	h := r.start()
	r.nextReady()
	pid := statusOf(t, h, "good").PID
	h.Stop()
	r.cfg.InstanceID, r.cfg.StateDir = "another", t.TempDir()
	has := func(p Provider) string {
		t.Helper()
		st, err := p.Client.State(t.Context(), &pb.StateRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return st.GetInstanceId()
	}
	h = r.start()
	if p := r.nextReady(); p.Kind != KindKept || has(p) != "test" {
		t.Errorf("adopted as %v, it has %s", p.Kind, has(p))
	}
	go reapChild(pid)
	if err := h.Restart("good", "a test"); err != nil {
		t.Fatal(err)
	}
	if p := r.nextReady(); p.Kind != KindChild || has(p) != "test" {
		t.Errorf("after a restart it is %v and has %s", p.Kind, has(p))
	}
}

// The log of a child that outlives the agent is bounded also for what does not
// come by the SDK.
func TestLogOfKeptChildIsBounded(t *testing.T) {
	r := newRig(t, "good")
	r.install("good", behaviour{})
	r.serving()
	h := r.start()
	r.nextReady()
	path := logPath(h.run, "good")
	f, err := openLog(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, handshake.MaxLogBytes+1)); err != nil {
		t.Fatal(err)
	}
	await.Until(t, func() string {
		if info, err := os.Stat(path); err != nil || info.Size() > handshake.MaxLogBytes {
			return "a log of at most 4 MiB"
		}
		return ""
	})
}
