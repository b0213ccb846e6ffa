// Package runnable writes programs that a test is going to run.
//
// A file that is open for writing cannot be executed (execve(2), ETXTBSY), and a
// child that is started meanwhile holds it open until its own execve. A test that
// writes a program while others start theirs would fail now and then
// (golang.org/issue/22315): here no process starts while a program is written.
package runnable

import (
	"os"
	"syscall"
)

// Write writes an executable file, which can be run once it returns.
func Write(path string, text []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, text, 0o755)
}

// Copy is Write with what the file from holds.
func Copy(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return Write(to, text)
}
