package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrOutside is wrapped when this process is in a cgroup that no mount shows: it
// entered its cgroup namespace without moving there, as sessions of WSL2 do that
// systemd did not start, or a part of the hierarchy is mounted that it is not in.
var ErrOutside = errors.New("this process is outside of the cgroups that it sees")

// Cgroup2 is where the cgroup v2 hierarchy is mounted. On hybrid hosts that is not
// /sys/fs/cgroup. Of several mounts the one that shows most counts: what is above
// the root of this process's cgroup namespace, then that root, then parts; of equal
// ones the last, which hides others at its place.
func Cgroup2(mounts []Mount) (string, error) {
	m, err := cgroup2(mounts)
	return m.Point, err
}

func cgroup2(mounts []Mount) (Mount, error) {
	var found Mount
	for _, m := range mounts {
		if m.Type == "cgroup2" && (found.Type == "" || shows(m.Root) >= shows(found.Root)) {
			found = m
		}
	}
	if found.Type == "" {
		return Mount{}, fmt.Errorf("cgroup v2: %w", ErrNone)
	}
	return found, nil
}

// shows ranks the roots of mounts: how many levels above the namespace's root, 0
// for that, below 0 for parts.
func shows(root string) int {
	levels := 0
	for rest := root; rest != "" && rest != "/"; levels++ {
		var up bool
		if rest, up = strings.CutPrefix(rest, "/.."); !up || rest != "" && rest[0] != '/' {
			return -1
		}
	}
	return levels
}

// IsPart reports whether a directory of the cgroup v2 hierarchy is not its root: in
// a cgroup namespace, as containers have, another cgroup looks like the root. All
// cgroups but the root have events to tell.
func IsPart(dir string) (bool, error) {
	_, err := os.Stat(filepath.Join(dir, "cgroup.events"))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// OwnCgroup is the path of this process's cgroup below the root of its cgroup
// namespace.
func OwnCgroup() (string, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", fmt.Errorf("own cgroup: %w", err)
	}
	return ParseOwnCgroup(string(text))
}

// ParseOwnCgroup reads proc_pid_cgroup(5): version 2 is the line of hierarchy 0.
func ParseOwnCgroup(text string) (string, error) {
	for line := range strings.Lines(text) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			return strings.TrimSuffix(path, " (deleted)"), nil
		}
	}
	return "", fmt.Errorf("own cgroup: no line of version 2 in %q", text)
}

// OwnDir is the directory of this process's cgroup, below where [Cgroup2] finds the
// hierarchy.
func OwnDir(mounts []Mount) (string, error) {
	m, err := cgroup2(mounts)
	if err != nil {
		return "", err
	}
	own, err := OwnCgroup()
	if err != nil {
		return "", err
	}
	if shows(m.Root) > 0 && !above(own) {
		return belowNamespace(m.Point, own)
	}
	return ownDir(m, own)
}

// ownDir finds the cgroup of a path by the names of both alone.
func ownDir(m Mount, own string) (string, error) {
	below, ok := strings.CutPrefix(own, strings.TrimSuffix(m.Root, "/"))
	if !ok || below != "" && below[0] != '/' || above(below) {
		return "", fmt.Errorf("%w: it is in %s, at %s is %s", ErrOutside, own, m.Point, m.Root)
	}
	return filepath.Join(m.Point, below), nil
}

// above reports whether a path leaves what it begins at.
func above(path string) bool { return path == "/.." || strings.HasPrefix(path, "/../") }

// belowNamespace finds the cgroup of a path from the root of the cgroup namespace at
// a mount of more than that. No name says where that root is: it is asked for its
// id, by a mount that is made in the namespace, is nowhere and gone at once. Only in
// the first namespace such a mount would alter the options of the others, and no
// mount shows more than that.
func belowNamespace(point, own string) (string, error) {
	fs, err := unix.Fsopen("cgroup2", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return "", fmt.Errorf("own cgroup: fsopen: %w", err)
	}
	defer unix.Close(fs)
	if err := unix.FsconfigCreate(fs); err != nil {
		return "", fmt.Errorf("own cgroup: fsconfig: %w", err)
	}
	root, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("own cgroup: fsmount: %w", err)
	}
	defer unix.Close(root)
	var st unix.Stat_t
	if err := unix.Fstatat(root, "."+own, &st, 0); err != nil {
		return "", fmt.Errorf("own cgroup %s: %w", own, err)
	}
	name, ok := NewCgroupNames(point).byHandle(st.Ino)
	if !ok {
		return "", fmt.Errorf("%w: its cgroup %s is not found at %s", ErrOutside, own, point)
	}
	return filepath.Join(point, name), nil
}

// Inside reports whether this process is in the tree of a cgroup directory.
func Inside(mounts []Mount, tree string) (bool, error) {
	at, err := OwnDir(mounts)
	if errors.Is(err, ErrOutside) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	tree = filepath.Clean(tree)
	return at == tree || strings.HasPrefix(at, strings.TrimSuffix(tree, "/")+"/"), nil
}
