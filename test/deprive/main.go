// Command deprive runs a command without something that a data plane needs of the
// machine, so that tests see what it says and does then. What it takes away it
// takes from the command and its children only; it needs root itself.
//
//	deprive -drop all -- COMMAND …                    no capability
//	deprive -bpf ENOSYS -- COMMAND …                  a kernel without bpf(2)
//	deprive -bpf LINK_CREATE=EINVAL -- COMMAND …      one without links
//	deprive -no-cgroup2 -- COMMAND …                  no cgroup v2 hierarchy mounted
//	deprive -cgroup DIR -cgroup-namespace -- …        in a container, as it sees cgroups
//	deprive -memlock 65536 -- COMMAND …               a limit of locked memory
//	deprive -hide /usr/sbin -- COMMAND …              an empty directory there
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// want is what the command is to be deprived of.
type want struct {
	drop            string // capabilities, by commas; all
	bpf             list   // errno, or COMMAND=errno
	hide            list   // directories
	cgroup, later   string
	cgroupNamespace bool
	noCgroup2       bool
	memlock         int64 // bytes; below 0: as it is
}

// list is a flag that may be given several times.
type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func main() {
	var w want
	flag.StringVar(&w.drop, "drop", "", "capabilities that are gone, such as CAP_BPF,CAP_NET_ADMIN; all: every one")
	flag.Var(&w.bpf, "bpf", "errno of all bpf(2) calls, or COMMAND=ERRNO such as LINK_CREATE=EINVAL of some")
	flag.Var(&w.hide, "hide", "directory that is empty")
	flag.StringVar(&w.cgroup, "cgroup", "", "directory of the cgroup to be in")
	flag.BoolVar(&w.cgroupNamespace, "cgroup-namespace", false, "a cgroup namespace of which that is the root, mounted as container runtimes do")
	flag.StringVar(&w.later, "then-cgroup", "", "directory of the cgroup to be in after that, which may be outside of the namespace; nothing is mounted anew")
	flag.BoolVar(&w.noCgroup2, "no-cgroup2", false, "no cgroup v2 hierarchy is mounted")
	flag.Int64Var(&w.memlock, "memlock", -1, "bytes of memory that may be locked")
	flag.Parse()
	err := errors.New("no command: want deprive [flags] -- COMMAND [ARGUMENTS]")
	if flag.NArg() > 0 {
		err = w.run(flag.Args())
	}
	fmt.Fprintln(os.Stderr, "deprive:", err)
	os.Exit(125)
}

// run becomes the command; it returns only if that cannot be.
func (w want) run(command []string) error {
	path, err := exec.LookPath(command[0]) // before it may be hidden
	if err != nil {
		return err
	}
	runtime.LockOSThread() // most of this is of one thread, the one that becomes the command
	for _, step := range []func() error{w.enterCgroup, w.changeMounts, w.limitMemory, w.filter, w.dropCapabilities} {
		if err := step(); err != nil {
			return err
		}
	}
	return syscall.Exec(path, command, os.Environ())
}
