package hostcheck

import (
	"fmt"
	"time"
)

// slowFsync is what making a small write durable may take before it delays what
// waits for it: a fifth of the time between two heartbeats of the store.
const slowFsync = 20 * time.Millisecond

// fewFiles is how many descriptors a process should be able to have: a connection
// takes one or two.
const fewFiles = 4096

func dataDir(f Facts) []Finding {
	const check = "data-dir"
	d, path := f.Storage.Dir, f.Config.DataDir
	switch {
	case path == "":
		return ok(check, "none: the node keeps nothing")
	case d.Hidden:
		return unknown(check, needsRoot)
	case !d.Exists && d.Writable:
		return ok(check, path+" will be made in "+d.Above)
	case !d.Exists:
		return found(check, Skipped, "this user may not make "+path, "run it as the user of the agent, or set node.data_dir to a directory of this user")
	case !d.IsDir:
		return found(check, Failed, path+" is no directory", "set node.data_dir to one, or move that away")
	case d.Mode.Perm()&0o022 != 0:
		return found(check, Failed, fmt.Sprintf("others may write %s (%v)", path, d.Mode), "chmod 700 "+path)
	case !d.Writable:
		return found(check, Skipped, "this user may not write "+path, "run it as the user of the agent, or set node.data_dir to a directory of this user")
	case !d.Mine:
		return found(check, Warning, path+" belongs to another user", "have one user run the agent: chown -R it to that one")
	}
	return ok(check, fmt.Sprintf("%s, %v", path, d.Mode))
}

func fsync(f Facts) []Finding {
	const check = "fsync"
	v := f.Storage.Fsync
	switch {
	case f.Config.DataDir == "":
		return nil
	case v.Why != "":
		return unknown(check, v.Why)
	case v.Value > slowFsync:
		return found(check, Warning, fmt.Sprintf("99 of 100 writes are durable within %v", v.Value), fmt.Sprintf("put node.data_dir on a disk that takes less than %v", slowFsync))
	}
	return ok(check, fmt.Sprintf("99 of 100 writes are durable within %v", v.Value))
}

func files(f Facts) []Finding {
	switch v := f.Files; {
	case v.Why != "":
		return unknown("files", v.Why)
	case v.Value < fewFiles:
		return found("files", Warning, fmt.Sprintf("%d descriptors for a process that this user starts", v.Value), fmt.Sprintf("ulimit -n %d, or LimitNOFILE= in the unit of systemd", 16*fewFiles))
	default:
		return ok("files", fmt.Sprintf("%d descriptors", v.Value))
	}
}
