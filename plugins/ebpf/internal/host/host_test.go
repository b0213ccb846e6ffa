package host

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/test/netns"
)

func TestMain(m *testing.M) { os.Exit(netns.Main(m)) }

const hybrid = `30 1 0:26 / /sys rw - sysfs sysfs rw
33 30 0:30 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro
34 33 0:31 / /sys/fs/cgroup/systemd rw shared:10 master:3 - cgroup cgroup rw,name=systemd
40 33 0:37 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
41 33 0:37 /a /mnt/some\040part rw - cgroup2 cgroup2 rw
42 30 0:38 / /sys/fs/bpf rw - bpf bpf rw
short line
`

func TestFileSystemsAreFoundByType(t *testing.T) {
	mounts := ParseMounts(hybrid)
	if len(mounts) != 6 || mounts[4] != (Mount{"/a", "/mnt/some part", "cgroup2"}) {
		t.Errorf("mounts: %+v", mounts)
	}
	if at, err := Cgroup2(mounts); err != nil || at != "/sys/fs/cgroup/unified" {
		t.Errorf("cgroup v2 of a hybrid host is at %q, %v", at, err)
	}
	if at, err := Cgroup2(mounts[4:]); err != nil || at != "/mnt/some part" {
		t.Errorf("a part of the hierarchy is at %q, %v", at, err)
	}
	if _, err := Cgroup2(mounts[:3]); !errors.Is(err, ErrNone) {
		t.Errorf("without cgroup v2: %v", err)
	}
}

func TestOwnCgroupIsTheLineOfVersion2(t *testing.T) {
	for text, want := range map[string]string{
		"9:name=systemd:/\n4:memory:/x\n0::/a/b\n": "/a/b",
		"0::/\n":            "/",
		"0::/a (deleted)\n": "/a",
	} {
		if got, err := ParseOwnCgroup(text); err != nil || got != want {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	if _, err := ParseOwnCgroup("4:memory:/x\n"); err == nil {
		t.Error("a cgroup was found on a host without version 2")
	}
}

func TestThisHost(t *testing.T) {
	mounts, err := Mounts()
	if err != nil || len(mounts) == 0 {
		t.Fatalf("mounts: %v, %v", mounts, err)
	}
	if IsBPFFS(t.TempDir()) {
		t.Error("a temporary directory is a BPF file system")
	}
	if at, err := Cgroup2(mounts); err == nil {
		if in, err := Inside(mounts, at); err != nil || !in {
			t.Errorf("this process is not in the tree of %s: %v, %v", at, in, err)
		}
		if in, err := Inside(mounts, at+"/no-such-cgroup"); err != nil || in {
			t.Errorf("this process is in a cgroup that does not exist: %v, %v", in, err)
		}
	}
	if os.Geteuid() == 0 {
		if err := CanMountBPFFS(); err != nil {
			t.Logf("no BPF file system can be made here: %v", err)
		}
	}
	if c, err := Cookie(); err != nil || c == 0 {
		t.Errorf("cookie %d, %v", c, err)
	}
}

func TestMountsNothingOverWhatIsThere(t *testing.T) {
	dir := netns.Isolated(t)
	if err := MountBPFFS(DefaultBPFFS); err != nil {
		t.Errorf("where one is mounted: %v", err)
	}
	mounts, err := Mounts()
	if err != nil {
		t.Fatal(err)
	}
	if got := BPFFS(mounts); len(got) != 1 || got[0] != DefaultBPFFS {
		t.Errorf("BPF file systems at %v", got)
	}
	fresh := t.TempDir()
	if err := MountBPFFS(fresh); err != nil || !IsBPFFS(fresh) {
		t.Errorf("a fresh one: %v", err)
	}
	if got, err := Mounts(); err != nil || len(BPFFS(got)) != 2 {
		t.Errorf("BPF file systems at %v, %v", BPFFS(got), err)
	}
	if err := MountBPFFS(filepath.Join(fresh, "no", "such")); err == nil {
		t.Error("one was mounted where no directory is")
	}
	if err := unix.Unmount(fresh, 0); err != nil {
		t.Error(err)
	}
	if in, err := Inside(mounts, dir); err != nil || !in {
		t.Errorf("this process is not in the cgroup of its tests: %v, %v", in, err)
	}
	if in, err := Inside(mounts, dir+"x"); err != nil || in {
		t.Errorf("a neighbour whose name begins alike holds this process: %v, %v", in, err)
	}
}
