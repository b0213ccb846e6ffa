package netns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// tools maps each program that the harness runs to the Debian package that brings it.
func tools() map[string]string {
	return map[string]string{"ip": "iproute2", "nft": "nftables"}
}

// Require skips the test when it does not run as root or when the kernel refuses to make a network namespace, and says which.
// A missing program is no excuse for root: it fails the test and names the remedy. [New] calls it.
func Require(t testing.TB) {
	t.Helper()
	if uid := os.Geteuid(); uid != 0 {
		t.Skipf("netns: skipped: network namespaces need root, this is uid %d: run the test as root", uid)
	}
	if err := probe(); excused(err) {
		t.Skipf("netns: skipped: this kernel or container makes no network namespaces: unshare: %v", err)
	} else if err != nil {
		t.Fatalf("netns: unshare: %v", err)
	}
	for name := range tools() {
		if _, err := tool(name); err != nil {
			t.Fatal(err)
		}
	}
}

// excused tells whether err is how a kernel without network namespaces (EINVAL, ENOSYS), or one that forbids them (EPERM), answers.
func excused(err error) bool {
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL)
}

// probe makes a namespace on a thread that is thrown away, and the namespace with it.
func probe() error {
	return onOwnThread(func() error { return unix.Unshare(unix.CLONE_NEWNET) })
}

// tool finds a program also where a root shell without a login (su) does not look.
func tool(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("netns: the program %s is missing: run `make setup` (Debian package %s)", name, tools()[name])
}
