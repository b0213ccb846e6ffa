package pluginhost

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

// heldError is an error that another try does not mend. The provider waits in
// its state until its files or its settings change, or somebody asks.
type heldError struct {
	state State // StateRefused, StateRejected
	err   error
}

func held(state State, err error) error { return &heldError{state, err} }

// Error implements error.
func (h *heldError) Error() string { return h.err.Error() }

// Unwrap returns the cause.
func (h *heldError) Unwrap() error { return h.err }

// placeKey changes when another file may stand for the name of a plugin, or the
// same file may be trusted now. It looks at the files, their manifests, and who
// may write to the directories above.
func placeKey(s Search, name string) string {
	var b strings.Builder
	for _, dir := range s.directories() {
		path := filepath.Join(dir.path, handshake.FilePrefix+name)
		fmt.Fprintln(&b, path, fileKey(path), fileKey(path+ManifestSuffix))
		for at := dir.path; ; at = filepath.Dir(at) {
			if info, err := os.Stat(at); err == nil {
				st := info.Sys().(*syscall.Stat_t)
				fmt.Fprintln(&b, at, st.Dev, st.Mode, st.Uid, st.Gid)
			}
			if at == filepath.Dir(at) {
				break
			}
		}
	}
	return b.String()
}

// claims says which provider of L4 has which scope. Decide sees to it that no two
// have one; but one that could not be asked then may tell its scopes only now.
type claims struct {
	mu     sync.Mutex
	holder map[dataplane.Scope]string
}

// settle notes what is known of the providers that were chosen, in place of all
// before. A provider that was not chosen any more claims nothing.
func (c *claims) settle(chosen []Finding) {
	c.mu.Lock()
	c.holder = map[dataplane.Scope]string{}
	c.mu.Unlock()
	for _, f := range chosen {
		_ = c.take(f.Name, f.captured()) // Decide found no conflict
	}
}

// take notes the scopes that a provider captures in place of those it had. It is an
// error if another has one of them, and then nothing changes.
func (c *claims) take(name string, scopes []dataplane.Scope) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, scope := range scopes {
		if other, taken := c.holder[scope]; taken && other != name {
			return held(StateRefused, refuse(fmt.Sprintf("it captures %v traffic, as %s does, which runs", scope, other), "keep one of the two in dataplane"))
		}
	}
	next := map[dataplane.Scope]string{}
	for scope, other := range c.holder {
		if other != name {
			next[scope] = other
		}
	}
	for _, scope := range scopes {
		next[scope] = name
	}
	c.holder = next
	return nil
}
