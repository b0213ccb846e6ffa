package sdk

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

// parentInterval is how often a child without a pipe looks for its parent.
const parentInterval = time.Second

// onHostLoss reads what to do when the host is gone.
func onHostLoss(getenv func(string) string) (serve bool, err error) {
	switch v := getenv(handshake.EnvOnHostLoss); v {
	case "", handshake.HostLossExit:
		return false, nil
	case handshake.HostLossServe:
		if getenv(handshake.EnvSocket) == "" {
			return false, fmt.Errorf("%s=%s needs %s: the next agent has to find the socket", handshake.EnvOnHostLoss, v, handshake.EnvSocket)
		}
		return true, nil
	default:
		return false, fmt.Errorf("%s=%q is not known: %s or %s", handshake.EnvOnHostLoss, v, handshake.HostLossExit, handshake.HostLossServe)
	}
}

// watchHost returns a channel that is closed when the host is gone. It watches
// until ctx ends.
func watchHost(ctx context.Context, getenv func(string) string, parent func() int) (<-chan struct{}, error) {
	lost := make(chan struct{})
	v := getenv(handshake.EnvHostFD)
	if v == "" {
		go pollParent(ctx, parent, lost)
		return lost, nil
	}
	pipe, err := openHostPipe(v)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = pipe.Close() })
	go func() {
		defer stop()
		_, _ = io.Copy(io.Discard, pipe) // an error of the pipe is its end, too
		if ctx.Err() == nil {
			_ = pipe.Close()
			close(lost)
		}
	}()
	return lost, nil
}

// openHostPipe takes over an inherited descriptor. Programs that the provider
// starts do not get it.
func openHostPipe(v string) (*os.File, error) {
	fd, err := strconv.Atoi(v)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("%s=%q: want the number of a descriptor, 3 or above", handshake.EnvHostFD, v)
	}
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("%s=%d: the host did not pass this descriptor: %w", handshake.EnvHostFD, fd, err)
	}
	if kind := st.Mode & syscall.S_IFMT; kind != syscall.S_IFIFO && kind != syscall.S_IFSOCK {
		return nil, fmt.Errorf("%s=%d is neither a pipe nor a socket", handshake.EnvHostFD, fd)
	}
	syscall.CloseOnExec(fd)
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("%s=%d: %w", handshake.EnvHostFD, fd, err)
	}
	return os.NewFile(uintptr(fd), "host"), nil
}

// pollParent notices when the kernel gave the process another parent.
func pollParent(ctx context.Context, parent func() int, lost chan<- struct{}) {
	first := parent()
	tick := time.NewTicker(parentInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if parent() != first {
				close(lost)
				return
			}
		}
	}
}
