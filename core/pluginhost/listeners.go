package pluginhost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

// Listener is a process that listens at a unix socket.
type Listener struct {
	PID    int
	Argv   []string
	Socket string // its path as this process reaches it, also in another mount namespace
}

// Listeners returns the unix sockets at which processes listen whose arguments match.
// What vanishes meanwhile, or is hidden from this user, is left out.
func Listeners(match func(argv []string) bool) []Listener {
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []Listener
	for _, entry := range procs {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if err != nil || len(text) == 0 {
			continue
		}
		argv := strings.Split(string(bytes.TrimRight(text, "\x00")), "\x00")
		if !match(argv) {
			continue
		}
		for _, path := range listens(entry.Name()) {
			path = filepath.Join("/proc", entry.Name(), "root", path)
			if _, err := os.Lstat(path); err != nil {
				// The kernel tells the name that it was bound by. The SDK adds a
				// dot and digits, and takes them off when it serves.
				path = strings.TrimSuffix(path, filepath.Ext(path))
			}
			out = append(out, Listener{PID: pid, Argv: argv, Socket: path})
		}
	}
	return out
}

// listens returns the paths of the sockets at which a process listens.
func listens(pid string) []string {
	own := map[string]bool{}
	fds, _ := os.ReadDir(filepath.Join("/proc", pid, "fd"))
	for _, fd := range fds {
		to, err := os.Readlink(filepath.Join("/proc", pid, "fd", fd.Name()))
		if inode, ok := strings.CutPrefix(to, "socket:["); err == nil && ok {
			own[strings.TrimSuffix(inode, "]")] = true
		}
	}
	table, err := os.ReadFile(filepath.Join("/proc", pid, "net", "unix"))
	if err != nil {
		return nil
	}
	return listening(string(table), own)
}

// listening returns the paths in a table of unix sockets, as /proc/net/unix, of those
// that listen and whose inodes are own. A path may hold blanks.
func listening(table string, own map[string]bool) []string {
	const accepts = 0x10000 // __SO_ACCEPTCON, see unix(7) and the kernel's unix_seq_show
	var out []string
	for line := range strings.Lines(table) {
		head, path, found := strings.Cut(strings.TrimSuffix(line, "\n"), "/")
		f := strings.Fields(head) // Num RefCount Protocol Flags Type St Inode
		if !found || len(f) != 7 || !own[f[6]] {
			continue
		}
		if flags, err := strconv.ParseUint(f[3], 16, 32); err == nil && flags&accepts != 0 {
			out = append(out, "/"+path)
		}
	}
	return out
}

// User is a process that uses what an instance has in the system.
type User struct {
	Who      string // for people
	PID      int
	Plugin   string // whose objects it uses; empty: those of any
	Instance string // empty: nobody knows, as it does not say
}

// askTime bounds the question whose objects a process uses.
const askTime = 2 * time.Second

// Users returns the data planes that run on this host, under any agent or by
// themselves. One that is not configured yet uses nothing.
func Users(ctx context.Context) []User {
	var out []User
	for _, l := range Listeners(isPlane) {
		name := filepath.Base(l.Argv[0])
		u := User{Who: fmt.Sprintf("%s, pid %d", name, l.PID), PID: l.PID, Plugin: strings.TrimPrefix(name, handshake.FilePrefix)}
		state, err := stateAt(ctx, u.Plugin, l.PID, l.Socket)
		if err == nil {
			u.Instance = state.GetInstanceId()
		}
		if err == nil && u.Instance == "" || err != nil && ended(l.PID) {
			continue
		}
		out = append(out, u)
	}
	return out
}

// ended reports whether a process is gone, or waits for its parent to hear of it.
func ended(pid int) bool {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return err != nil || len(text) == 0
}

func isPlane(argv []string) bool {
	return strings.HasPrefix(filepath.Base(argv[0]), handshake.FilePrefix)
}

func stateAt(ctx context.Context, name string, pid int, socket string) (*pb.StateResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if by, err := servedBy(ctx, socket); err != nil || by != pid {
		return nil, fmt.Errorf("pluginhost: process %d does not answer at %s: %w", pid, socket, errors.Join(err, errNotThere))
	}
	conn, err := dial(name, socket, &atomic.Bool{})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return pb.NewDataPlaneProviderClient(conn).State(ctx, &pb.StateRequest{})
}
