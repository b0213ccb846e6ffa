// Package files says how many connections the limit of open files has room for.
package files

import "syscall"

// spareFiles is how many descriptors are kept for all but requests, at most: a
// quarter of all where there are few.
const spareFiles = 256

// Room is how many connections of clients each of some listeners can take within
// the limit of open files, as a request needs one to its backend as well: so
// that is how many connections to backends there is room for, too, with one
// listener.
func Room(listeners int) (connections int, files uint64) {
	files, known := limit()
	if !known {
		return 1 << 30, 0
	}
	if files > 1<<30 {
		return 1 << 30, files // no limit
	}
	return roomIn(files, listeners), files
}

func roomIn(files uint64, listeners int) int {
	return max(1, int((files-spareIn(files))/2)/max(1, listeners))
}

// Spare is how many descriptors are kept for all but requests.
func Spare() int {
	files, known := limit()
	if !known {
		return spareFiles
	}
	return int(spareIn(files))
}

// limit is how many files this process may have open.
func limit() (files uint64, known bool) {
	var l syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l)
	return l.Cur, err == nil
}

func spareIn(files uint64) uint64 { return min(spareFiles, files/4) }
