package pluginhost

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// image is an executable that was opened and found good. What runs later is
// this open file, so a file that takes its place meanwhile is not what runs.
type image struct {
	name     string
	path     string
	file     *os.File
	script   bool // #!, so the interpreter has to open it once more
	manifest *Manifest
}

// lowestFD keeps the descriptor of an image above those that the start of a
// program puts in order for it.
const lowestFD = 64

// openImage opens and checks the plugin at path. All checks look at the opened
// file.
func openImage(path, name string, who trust) (*image, *Refusal) {
	f, err := open(path)
	switch {
	case errors.Is(err, unix.ENXIO):
		return nil, refuse(path+" is no regular file", "remove it")
	case errors.Is(err, fs.ErrNotExist):
		return nil, refuse(path+" is gone, or a link that leads nowhere", "install the plugin again")
	case err != nil:
		return nil, refuse(err.Error(), "make the file readable and executable for the agent: chmod 0755 "+path)
	}
	img := &image{name: name, path: path, file: f}
	if r := img.check(who); r != nil {
		img.close()
		return nil, r
	}
	return img, nil
}

// open opens without waiting for a writer of a pipe.
func open(path string) (*os.File, error) {
	low, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(low)
	fd, err := unix.FcntlInt(uintptr(low), unix.F_DUPFD_CLOEXEC, lowestFD)
	if err != nil {
		return nil, &os.PathError{Op: "dup", Path: path, Err: err}
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		_ = unix.Close(fd)
		return nil, &os.PathError{Op: "fcntl", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

func (i *image) close() { _ = i.file.Close() }

func (i *image) check(who trust) *Refusal {
	info, err := i.file.Stat()
	if err != nil {
		return refuse(err.Error(), "")
	}
	if !info.Mode().IsRegular() {
		return refuse(i.path+" is no regular file", "remove it")
	}
	if r := who.file(i.path, info); r != nil {
		return r
	}
	real, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", i.file.Fd()))
	if err != nil {
		return refuse(err.Error(), "mount /proc")
	}
	if r := who.directories(filepath.Dir(real)); r != nil {
		return r
	}
	if r := i.executable(); r != nil {
		return r
	}
	var r *Refusal
	if i.manifest, r = readManifest(i.path, i.name, who); r != nil {
		return r
	}
	return i.pinned()
}

// executable refuses what the kernel would refuse, with a reason that one can
// act on.
func (i *image) executable() *Refusal {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(i.file.Fd()), &fs); err == nil && fs.Flags&unix.ST_NOEXEC != 0 {
		return refuse(i.path+" is on a file system that is mounted noexec", "move the plugins, or mount it with exec")
	}
	err := unix.Faccessat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", i.file.Fd()), unix.X_OK, unix.AT_EACCESS)
	if err != nil {
		return refuse(i.path+" is not executable", "chmod 0755 "+i.path)
	}
	head := make([]byte, 256)
	n, err := i.file.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return refuse(err.Error(), "")
	}
	head = head[:n]
	switch {
	case bytes.HasPrefix(head, []byte("#!")):
		i.script = true
		return interpreter(i.path, head)
	case bytes.HasPrefix(head, []byte(elf.ELFMAG)):
		return i.machine()
	}
	return refuse(i.path+" is neither an ELF program nor a script that begins with #!", "install a build of the plugin for this system")
}

func interpreter(path string, head []byte) *Refusal {
	line, _, _ := bytes.Cut(head[2:], []byte("\n"))
	fields := strings.Fields(string(line))
	if len(fields) == 0 {
		return refuse(path+" names no interpreter after #!", "name one, as in #!/usr/bin/python3")
	}
	if _, err := os.Stat(fields[0]); err != nil {
		return refuse(fmt.Sprintf("the interpreter of %s: %v", path, err), "install it, or name another in the first line")
	}
	return nil
}

func (i *image) machine() *Refusal {
	f, err := elf.NewFile(i.file)
	if err != nil {
		return refuse(fmt.Sprintf("%s is a broken ELF program: %v", i.path, err), "install it again")
	}
	want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "386": elf.EM_386, "arm": elf.EM_ARM, "riscv64": elf.EM_RISCV}
	if m, known := want[runtime.GOARCH]; known && f.Machine != m {
		return refuse(fmt.Sprintf("%s is a program for %v, and this host is %s", i.path, f.Machine, runtime.GOARCH), "install the build for "+runtime.GOARCH)
	}
	return nil
}

// pinned compares the bytes with the manifest.
func (i *image) pinned() *Refusal {
	if i.manifest == nil {
		return nil
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(i.file, 0, 1<<62)); err != nil {
		return refuse(fmt.Sprintf("cannot read %s: %v", i.path, err), "")
	}
	if got := sum.Sum(nil); !bytes.Equal(got, i.manifest.sum[:]) {
		return refuse(fmt.Sprintf("sha256 of %s is %s, and its manifest says %s", i.path, hex.EncodeToString(got), i.manifest.SHA256),
			"install the plugin again, or correct "+i.path+ManifestSuffix+" if the change was meant")
	}
	return nil
}

// program returns how to run the open file. dir takes a symbolic link to it: it
// gives the process its name in listings, and a script its path.
func (i *image) program(dir string) (program, error) {
	fd := int(i.file.Fd())
	p := program{args: []string{i.path}}
	if i.script {
		// Its interpreter opens it by that descriptor, which therefore has to
		// stay open beyond the start: the first one after the standard ones.
		fd = firstExtraFD
		p.extra = []*os.File{i.file}
	}
	p.path = filepath.Join(dir, filepath.Base(i.path))
	if err := os.Symlink(fmt.Sprintf("/proc/self/fd/%d", fd), p.path); err != nil {
		return p, err
	}
	if i.manifest != nil {
		p.capabilities = &i.manifest.capabilities
	}
	return p, nil
}

const firstExtraFD = 3

// explainStart turns an error of the start into a refusal.
func (i *image) explainStart(err error) error {
	switch {
	case errors.Is(err, syscall.EACCES):
		return refuse(fmt.Sprintf("%s may not be executed: %v", i.path, err), "check its mode, its interpreter's, and for noexec in the mounts")
	case errors.Is(err, syscall.ENOENT):
		return refuse(fmt.Sprintf("%s cannot be executed: %v", i.path, err), "the interpreter or the dynamic loader that it names is missing: install it")
	case errors.Is(err, syscall.EAGAIN):
		return refuse(fmt.Sprintf("%s cannot be started: %v", i.path, err), "raise the limit of processes (TasksMax of the unit)")
	}
	return fmt.Errorf("start %s: %w", i.path, err)
}
