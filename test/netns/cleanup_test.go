package netns

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/scale"
)

func itoa(n int) string { return strconv.Itoa(n) }

// remains lists what is left of a topology: names, mounts, processes.
func remains(t *testing.T, namespaces map[string]uint64) []string {
	t.Helper()
	var left []string
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for name, inode := range namespaces {
		if _, err := os.Lstat(filepath.Join(runDir, name)); !errors.Is(err, os.ErrNotExist) {
			left = append(left, "file "+name)
		}
		if strings.Contains(string(mounts), name) {
			left = append(left, "mount of "+name)
		}
		pids, err := pidsInside(inode)
		if err != nil {
			t.Fatal(err)
		}
		for _, pid := range pids {
			left = append(left, fmt.Sprintf("process %d in %s", pid, name))
		}
	}
	return left
}

// identities maps the namespaces of a topology to their inodes.
func identities(topo *Topology) map[string]uint64 {
	all := make(map[string]uint64)
	for _, s := range topo.spaces() {
		all[s.name] = s.inode
	}
	return all
}

func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// ended also counts a zombie: the orphan's new parent may be slow to reap it.
func ended(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

func TestCleanUpLeavesNothing(t *testing.T) {
	var namespaces map[string]uint64
	var processes []*Process
	var grandchild int
	t.Run("topology", func(t *testing.T) {
		topo := New(t, Options{Nodes: 3})
		namespaces = identities(topo)
		for _, n := range topo.Nodes() {
			processes = append(processes, startHelper(t, n, "wait"))
		}
		processes[0].Stop()
		parent := startHelper(t, topo.Node(2), "parent")
		processes = append(processes, parent)
		Eventually(t, patient, func() bool {
			_, err := fmt.Sscanf(parent.Output(), "child %d\n", &grandchild)
			return err == nil
		}, "a child of %s", parent)
		topo.Partition(topo.Nodes()[:1], topo.Nodes()[1:])
		topo.Loss(50)
		if left := remains(t, namespaces); len(left) < 2*len(namespaces)+len(processes) {
			t.Errorf("the search for remains finds only %v while the topology is up", left)
		}
	})
	if left := remains(t, namespaces); len(left) > 0 {
		t.Errorf("left behind: %s", strings.Join(left, ", "))
	}
	for _, p := range processes {
		if !gone(p.Pid()) {
			t.Errorf("%s is still there", p)
		}
	}
	if !ended(grandchild) {
		t.Errorf("child %d of a process outlives the topology", grandchild)
	}
}

func TestCloseTwice(t *testing.T) {
	topo := New(t, Options{Nodes: 1})
	p := startHelper(t, topo.Node(0), "wait")
	for range 2 {
		if err := topo.Close(); err != nil {
			t.Error(err)
		}
	}
	if !gone(p.Pid()) {
		t.Errorf("%s is still there", p)
	}
	if _, err := topo.Node(0).start("/bin/true", nil, nil); !errors.Is(err, errClosed) {
		t.Errorf("start after Close says %v", err)
	}
	if err := topo.Node(0).Do(func() error { return nil }); err == nil {
		t.Error("Do works after Close")
	}
}

func TestSweepAfterDeathOfTheTestBinary(t *testing.T) {
	New(t, Options{Nodes: 1}) // skips where it has to, and must survive the sweep
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), helperVariable+"=killed")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid, parent int
	var first, second string
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err == nil {
		_, err = fmt.Sscan(line, &pid, &parent, &first, &second)
	}
	if err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		t.Fatalf("the other test binary printed %q: %v", line, err)
	}
	namespaces := make(map[string]uint64)
	for _, name := range []string{first, second} {
		if namespaces[name], err = inodeOf(filepath.Join(runDir, name)); err != nil {
			t.Error(err)
		}
	}
	// The child of the parent is in a session of its own: only the search by namespace finds it.
	Eventually(t, patient, func() bool {
		pids, err := pidsInside(namespaces[second])
		return err == nil && len(pids) == 2
	}, "a parent and its child in %s", second)
	if swept, err := Sweep(); err != nil || strings.Contains(fmt.Sprint(swept), first) {
		t.Errorf("sweep removed %v of a living test binary: %v", swept, err)
	}

	cmd.Process.Kill()
	cmd.Wait()
	Eventually(t, patient, func() bool { return ended(pid) && ended(parent) }, "death of the processes %d and %d of the killed test binary", pid, parent)
	// Another test binary may sweep at the same time, so it is the outcome that counts.
	if _, err := Sweep(); err != nil {
		t.Error(err)
	}
	Eventually(t, patient, func() bool { return len(remains(t, namespaces)) == 0 }, "removal of what was left")
}

func TestAbandonedNames(t *testing.T) {
	mine, err := spaceName(1, "n1")
	if err != nil {
		t.Fatal(err)
	}
	start, err := startTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		mine: false,
		fmt.Sprintf("%s%d.%d.1.n1", namePrefix, os.Getpid(), start-1): true, // a pid that was reused
		namePrefix + "999999999.1.1.n1":                               true,
		namePrefix + "999999999.1.n1":                                 false, // not of this form
		namePrefix + "x.1.1.n1":                                       false,
		"somebody-elses":                                              false,
	} {
		if got := abandoned(name); got != want {
			t.Errorf("abandoned(%q) = %v, want %v", name, got, want)
		}
	}
}

func TestTopologiesInParallel(t *testing.T) {
	for i := range 3 {
		t.Run(itoa(i), func(t *testing.T) {
			t.Parallel()
			topo := New(t, Options{Nodes: 3})
			s := sockets(t, topo) // the same addresses and ports in each
			if i == 0 {
				topo.Isolate(topo.Node(0))
				s[0].refuse(t, topo, s[1], topo.Node(1).Addr(), "cut")
				return
			}
			for round := range 20 {
				text := fmt.Sprintf("topology %d round %d", i, round)
				s[0].expect(t, s[1], topo.Node(1).Addr(), text)
			}
			for heard := true; heard; {
				select {
				case text := <-s[2].heard:
					t.Errorf("a silent node heard %q", text)
				default:
					heard = false
				}
			}
		})
	}
}

func TestOptions(t *testing.T) {
	Require(t)
	for _, nodes := range []int{-1, 0, MaxNodes + 1} {
		if topo, err := build(Options{Nodes: nodes}); err == nil {
			t.Errorf("%d nodes are accepted", nodes)
			topo.Close()
		}
	}
}

func TestFiveNodesComeUpQuickly(t *testing.T) {
	Require(t)
	start := time.Now()
	topo := New(t, Options{Nodes: 5})
	up := time.Since(start)
	s := sockets(t, topo)
	for i := range s {
		for j := range s {
			s[i].expect(t, s[j], topo.Node(j).Addr(), fmt.Sprintf("%d %d", i, j))
		}
	}
	ready := time.Since(start)
	err := topo.Close()
	t.Logf("up after %v, all paths heard after %v, closed after %v: %v", up, ready, time.Since(start)-ready, err)
	// The machine is shared and noisy: the aim is 1 s, the limit for an alarm lies above.
	if ready > scale.Bound(5*time.Second, patient) {
		t.Errorf("a topology of 5 nodes took %v until all paths worked", ready)
	}
}
