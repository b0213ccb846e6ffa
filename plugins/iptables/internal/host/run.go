package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Errors of the binaries, by cause.
var (
	// ErrLocked: another process holds the lock of the tables.
	ErrLocked = errors.New("the xtables lock is held")
	// ErrForbidden: this process lacks a right.
	ErrForbidden = errors.New("not permitted")
	// ErrAbsent: the kernel does not have the table.
	ErrAbsent = errors.New("the kernel lacks the table")
)

// Command is a process to run.
type Command struct {
	Path  string
	Args  []string
	Stdin []byte
}

// killTime is how long a process that was told to end may take.
const killTime = time.Second

// Run runs a process and returns what it printed. When ctx ends it is killed, with
// the processes that it started. The error holds what it said, and wraps ErrLocked
// or ErrForbidden if that is the cause.
func Run(ctx context.Context, c Command) (string, error) {
	cmd := exec.CommandContext(ctx, c.Path, c.Args...)
	var out, complaint bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(c.Stdin), &out, &complaint
	cmd.Env = append(cmd.Environ(), "LC_ALL=C") // complaints are matched
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = killTime
	err := cmd.Run()
	if err == nil {
		return out.String(), nil
	}
	if ctx.Err() != nil {
		return out.String(), fmt.Errorf("host: %s was ended: %w", c.Path, ctx.Err())
	}
	said := firstLine(complaint.String())
	if cause := cause(err, said); cause != nil {
		return out.String(), fmt.Errorf("host: %s: %w: %s", c.Path, cause, said)
	}
	return out.String(), fmt.Errorf("host: %s: %w: %s", c.Path, err, said)
}

// locked is the exit status of a process that did not get the lock in time.
const locked = 4

func cause(err error, said string) error {
	var exit *exec.ExitError
	code := 0
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	}
	switch {
	case strings.Contains(said, "Permission denied") || strings.Contains(said, "Operation not permitted"):
		return ErrForbidden
	case strings.Contains(said, "can't initialize") || strings.Contains(said, "Cannot initialize") || strings.Contains(said, "Could not fetch rule set generation id"):
		return ErrAbsent
	case code == locked && strings.Contains(said, "lock"):
		return ErrLocked
	}
	return nil
}

// firstLine is what a process complained of, without the hint to its manual.
func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return strings.TrimSpace(line)
}

// Restore changes tables by one text: each table of it is all or nothing.
func (t Tools) Restore(ctx context.Context, f Family, text []byte, wait time.Duration) error {
	_, err := Run(ctx, Command{Path: t.of(f).restore, Args: append([]string{"--noflush"}, waitArgs(wait)...), Stdin: text})
	return err
}

// Save prints a table of a family with its counters.
func (t Tools) Save(ctx context.Context, f Family, table string) (string, error) {
	return Run(ctx, Command{Path: t.of(f).save, Args: []string{"-c", "-t", table}})
}

// waitArgs is how long to wait for the lock: whole seconds, one at least.
func waitArgs(wait time.Duration) []string {
	return []string{"-w", fmt.Sprint(max(1, int(wait/time.Second)))}
}

// SaveAll prints all tables of a family.
func (t Tools) SaveAll(ctx context.Context, f Family) (string, error) {
	return Run(ctx, Command{Path: t.of(f).save})
}
