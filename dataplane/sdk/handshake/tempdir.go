package handshake

import (
	"fmt"
	"os"
	"path/filepath"
)

const (
	// mostTempBytes is how long the path of a directory for temporary files may be: below
	// it are directories of agents, and below those the sockets.
	mostTempBytes = 24
	// shortTemp is there instead of a longer one.
	shortTemp = "/tmp"
)

// TempRoot is the directory for temporary files, TMPDIR's, unless no socket would fit
// below that: the kernel takes paths of 107 bytes at most.
func TempRoot() string {
	if dir := os.TempDir(); filepath.IsAbs(dir) && len(dir) <= mostTempBytes {
		return dir
	}
	return shortTemp
}

// TempDir makes a directory for sockets, which is this user's alone. A name that begins
// with prefix is chosen for it; the caller removes it.
func TempDir(prefix string) (string, error) {
	dir, err := os.MkdirTemp(TempRoot(), prefix)
	if err != nil {
		return "", fmt.Errorf("make a directory for sockets: %w", err)
	}
	return dir, nil
}
