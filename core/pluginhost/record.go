package pluginhost

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/core/durable"
)

// record is what is kept of a child while it lives, so that an agent after a
// crash finds it again, and ends no other process that has its number.
type record struct {
	Name   string `json:"name"`
	PID    int    `json:"pid"`
	Began  uint64 `json:"began"` // clock ticks since boot
	Boot   string `json:"boot"`  // of the kernel
	Socket string `json:"socket"`
	Serve  bool   `json:"serve"` // it is to outlive the agent
}

const recordSuffix = ".json"

// newRecord describes a live child.
func newRecord(name string, pid int, socket string, serve bool) (record, error) {
	began, err := beganAt(pid)
	if err != nil {
		return record{}, err
	}
	boot, err := bootID()
	return record{Name: name, PID: pid, Began: began, Boot: boot, Socket: socket, Serve: serve}, err
}

// process returns the process of the record if it still lives, or nil.
func (r record) process() *process {
	if boot, err := bootID(); err != nil || boot != r.Boot || r.PID <= 1 {
		return nil
	}
	return find(r.PID, r.Began)
}

func writeRecord(dir string, r record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return durable.Replace(filepath.Join(dir, r.Name+recordSuffix), text)
}

// readRecord returns the record of a plugin; false if there is none that can be
// read, which is the same to who wants to go on.
func readRecord(dir, name string) (record, bool) {
	text, err := os.ReadFile(filepath.Join(dir, name+recordSuffix))
	if err != nil {
		return record{}, false
	}
	var r record
	if json.Unmarshal(text, &r) != nil || r.Name != name {
		return record{}, false
	}
	return r, true
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func bootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text)), err
}

// afterName returns the fields of proc_pid_stat(5) from the third on: state,
// parent, process group.
func afterName(stat string) []string {
	end := strings.LastIndexByte(stat, ')')
	if end < 0 {
		return nil
	}
	return strings.Fields(stat[end+1:])
}

// parseBeganAt reads field 22 of proc_pid_stat(5). The name of the program, in
// parentheses, may hold blanks and parentheses of its own.
func parseBeganAt(stat string) (uint64, error) {
	fields := afterName(stat)
	if len(fields) < 20 {
		return 0, fmt.Errorf("not a process status: %.80q", stat)
	}
	return strconv.ParseUint(fields[19], 10, 64)
}
