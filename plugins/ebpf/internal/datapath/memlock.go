package datapath

import "golang.org/x/sys/unix"

// errPermission is how kernels before 5.11 say that RLIMIT_MEMLOCK is used up:
// there maps count as locked memory of the process, and 64 KiB is the usual limit.
const errPermission = unix.EPERM

// lockedNeed is less than any set of maps takes, and more than the usual limit.
const lockedNeed = 8 << 20

// RaiseLocked lets this process lock as much memory as maps may take on old
// kernels. On others the limit means nothing to maps.
func RaiseLocked() {
	limit := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &limit, nil) == nil || unix.Prlimit(0, unix.RLIMIT_MEMLOCK, nil, &limit) != nil {
		return
	}
	limit.Cur = limit.Max                                 // as far as anybody may
	_ = unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &limit, nil) // what it was for says so if it failed
}

func enoughLocked() bool {
	var limit unix.Rlimit
	return unix.Prlimit(0, unix.RLIMIT_MEMLOCK, nil, &limit) != nil || limit.Cur >= lockedNeed
}
