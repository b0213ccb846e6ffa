package host

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCgroupsAreNamedById(t *testing.T) {
	mounts, err := Mounts()
	if err != nil {
		t.Fatal(err)
	}
	root, err := Cgroup2(mounts)
	if err != nil {
		t.Skip("the kernel excuses it: ", err)
	}
	own, err := OwnCgroup()
	if err != nil {
		t.Fatal(err)
	}
	id := func(name string) uint64 {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(root, name), &st); err != nil {
			t.Fatal(err)
		}
		return st.Ino
	}
	pid := uint32(os.Getpid())
	for _, name := range []string{own, "/"} {
		if got, ok := NewCgroupNames(root).byHandle(id(name)); os.Geteuid() == 0 && (!ok || got != name) {
			t.Errorf("the kernel names %q %q, %v", name, got, ok)
		}
	}
	names := NewCgroupNames(root)
	if got, ok := names.byProcess(id(own), pid); !ok || got != own {
		t.Errorf("by the process %q is %q, %v", own, got, ok)
	}
	if got, ok := names.byProcess(id(own)+1<<40, pid); ok {
		t.Errorf("the process was taken for one of another cgroup: %q", got)
	}
	if got := names.Name(id(own), pid); got != own {
		t.Errorf("%q is named %q", own, got)
	}
	if got := names.Name(id(own), 0); got != own {
		t.Errorf("%q is forgotten: %q", own, got)
	}
	if got := names.Name(1<<62, 0); got != "" {
		t.Errorf("a cgroup that is not there is named %q", got)
	}
	names.known = map[uint64]string{}
	for i := range uint64(maxNames) {
		names.known[1<<40+i] = "x"
	}
	if got := names.Name(id(own), pid); got != own || len(names.known) != 1 {
		t.Errorf("with %d names remembered %q is %q", len(names.known), own, got)
	}
}
