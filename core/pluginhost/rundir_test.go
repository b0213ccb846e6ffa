package pluginhost

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/runnable"
)

func TestRunDirErrors(t *testing.T) {
	for name, test := range map[string]struct {
		dir  func(t *testing.T) string
		want []string
	}{
		"too long": {func(t *testing.T) string { return "/tmp/" + strings.Repeat("x", 115) }, []string{"120 bytes long and may have 68", "choose a shorter one"}},
		"relative": {func(*testing.T) string { return "run" }, []string{`"run" is not absolute`}},
		"a file": {func(t *testing.T) string {
			path := filepath.Join(shortDir(t), "f")
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}, []string{"not a directory", "choose another"}},
		"of another user": {func(t *testing.T) string {
			dir := shortDir(t)
			if os.Geteuid() != 0 {
				t.Skip("needs root")
			}
			if err := os.Chown(dir, 65534, -1); err != nil {
				t.Fatal(err)
			}
			return dir
		}, []string{"belongs to user 65534", "choose another"}},
		"read-only": {func(t *testing.T) string { return mounted(t, unix.MS_RDONLY, "") }, []string{"read-only file system", "choose another"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := test.dir(t)
			r, err := openRunDir(dir)
			if err == nil {
				r.close()
				t.Fatal("no error")
			}
			for _, want := range append(test.want, filepath.Base(dir)) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %v", want, err)
				}
			}
		})
	}
}

// mounted is a directory with a file system of its own. It skips where nobody
// may mount.
func mounted(t *testing.T, flags uintptr, options string) string {
	t.Helper()
	dir := shortDir(t)
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", dir, "tmpfs", flags|unix.MS_NODEV|unix.MS_NOSUID, "mode=0700,size=32m"+options); err != nil {
		t.Skipf("cannot mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// Sockets need no right to execute: a run directory that is mounted noexec is as
// good as any.
func TestRunDirMountedNoexecWorks(t *testing.T) {
	r := newRig(t, "good")
	r.cfg.RunDir = mounted(t, unix.MS_NOEXEC, "")
	r.install("good", behaviour{})
	r.start()
	r.nextReady()
}

func TestPluginDirMountedNoexecIsRefused(t *testing.T) {
	r := newRig(t)
	dir := mounted(t, unix.MS_NOEXEC, "")
	if err := runnable.Write(filepath.Join(dir, "fairlead-dataplane-x"), []byte("#!/bin/sh\n")); err != nil {
		t.Fatal(err)
	}
	r.cfg.Search.Dirs = []string{dir}
	c := find1(t, Discover(r.cfg.Search), "x")
	if c.Refused == nil || !strings.Contains(c.Refused.Reason, "mounted noexec") || c.Refused.Remedy == "" {
		t.Errorf("found %+v", c)
	}
}

// A run directory that fills up while the agent runs is an error of the start.
func TestRunDirWithoutRoom(t *testing.T) {
	r := newRig(t, "good")
	r.cfg.RunDir = mounted(t, 0, ",nr_inodes=60")
	r.install("good", behaviour{})
	h := r.start()
	r.nextReady()
	kill(t, statusOf(t, h, "good").PID, syscall.SIGKILL)
	n := 0
	await.Until(t, func() string {
		for ; n < 1000; n++ { // what the plugin had is free by now
			if err := os.Mkdir(filepath.Join(r.cfg.RunDir, itoa(n)), 0o700); err != nil {
				break
			}
		}
		s := statusOf(t, h, "good")
		if !strings.Contains(s.Reason, "cannot be written") || !strings.Contains(s.Reason, "make room there") {
			if s.State == StateReady {
				_ = syscall.Kill(s.PID, syscall.SIGKILL)
			}
			return "the reason, it is: " + s.Reason
		}
		return ""
	})
}

func TestRunDirIsClosedToOthers(t *testing.T) {
	dir := shortDir(t)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	r, err := openRunDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode is %v, %v", info.Mode(), err)
	}
}

func TestSocketOfServingPluginHasToFit(t *testing.T) {
	name := "a-name-of-thirty-two-characters"
	r := newRig(t, name)
	r.install(name, behaviour{})
	dir := shortDir(t)
	r.cfg.RunDir = filepath.Join(dir, strings.Repeat("x", 67-len(dir)))
	r.cfg.Settings = map[string]Settings{name: {Values: map[string]any{keyOnHostLoss: "serve"}}}
	h := r.start()
	s := waitState(t, h, name, StateCrashLoop)
	if !strings.Contains(s.Reason, "choose a shorter run directory") {
		t.Errorf("reason is %s", s.Reason)
	}
}

func TestNewErrors(t *testing.T) {
	if _, err := New(Config{}); err == nil || !strings.Contains(err.Error(), "Metrics is nil") {
		t.Errorf("error is %v", err)
	}
	registry := prometheus.NewRegistry()
	r := newRig(t)
	r.cfg.Metrics = registry
	r.host()
	again := newRig(t)
	again.cfg.Metrics = registry
	if _, err := New(again.cfg); err == nil || !strings.Contains(err.Error(), "register metrics") {
		t.Errorf("error is %v", err)
	}
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	again = newRig(t)
	again.cfg.StateDir = file
	if _, err := again.host().Start(t.Context()); err == nil || !strings.Contains(err.Error(), "choose another node.data_dir") {
		t.Errorf("error is %v", err)
	}
}
