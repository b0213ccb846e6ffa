package hostcheck

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func directory(path string) Directory {
	if path == "" {
		return Directory{}
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		d := Directory{Above: above(path)}
		at, err := os.Stat(d.Above)
		d.Writable = err == nil && at.IsDir() && unix.Access(d.Above, unix.W_OK|unix.X_OK) == nil
		return d
	case err != nil:
		return Directory{Hidden: true}
	}
	owner, known := info.Sys().(*syscall.Stat_t)
	return Directory{
		Exists: true, IsDir: info.IsDir(), Mode: info.Mode(), Mine: known && int(owner.Uid) == os.Geteuid(),
		Writable: unix.Access(path, unix.W_OK|unix.X_OK) == nil,
	}
}

// above is the nearest of the directories above path that exists.
func above(path string) string {
	for {
		up := filepath.Dir(path)
		if _, err := os.Stat(up); err == nil || up == path {
			return up
		}
		path = up
	}
}

// measureFsync writes to a file that has no name, so that nothing stays of it,
// and makes each write durable. A directory that is to be made is taken for one
// of the file system above.
func measureFsync(ctx context.Context, path string, d Directory) Known[time.Duration] {
	switch {
	case d.Hidden, !d.Writable:
		return Known[time.Duration]{Why: "this user may not write " + path}
	case !d.Exists:
		path = d.Above
	}
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_TMPFILE, 0o600)
	if err != nil {
		return knownOr(time.Duration(0), err)
	}
	defer file.Close()
	block := make([]byte, fsyncBytes)
	var took []time.Duration
	for begin := time.Now(); len(took) < fsyncWrites && time.Since(begin) < fsyncTime && ctx.Err() == nil; {
		start := time.Now()
		if _, err := file.WriteAt(block, int64(len(took)*fsyncBytes)); err != nil {
			return knownOr(time.Duration(0), err)
		}
		if err := file.Sync(); err != nil {
			return knownOr(time.Duration(0), err)
		}
		took = append(took, time.Since(start))
	}
	return Known[time.Duration]{Value: percentile99(took)}
}

// percentile99 is the least value that 99 of 100 do not exceed; 0 of none.
func percentile99(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[(len(all)*99+99)/100-1].Round(10 * time.Microsecond)
}
