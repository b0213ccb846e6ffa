package pluginhost

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/core/durable"
	"github.com/fairlead/fairlead/dataplane"
)

// choiceFile is where a Decision is kept, in the state directory.
const choiceFile = "dataplane-choice.json"

// Kept is a decision that was written down.
type Kept struct {
	// Key changes when the wish, the kernel, the boot, the rights of the agent
	// or the plugins change; then it is decided anew. Empty: it is next time.
	Key      string    `json:"key"`
	At       time.Time `json:"at"`
	Wish     Wish      `json:"wish"`
	Decision Decision  `json:"decision"`
	// Error is why the wish could not be granted; empty: it was.
	Error string `json:"error,omitempty"`
	// Infos are what the chosen said of themselves: with other settings two of
	// them may capture the same connections.
	Infos map[string]dataplane.Info `json:"infos"`
}

// findings are those of the chosen, with settings of now.
func (k Kept) findings(config func(name string) []byte) map[string]Finding {
	out := map[string]Finding{}
	for _, c := range k.Decision.Chosen {
		out[c.Name] = Finding{Name: c.Name, Installed: true, Info: k.Infos[c.Name], Config: config(c.Name)}
	}
	return out
}

// ReadChoice returns the decision that an agent with this state directory took
// last; false if there is none.
func ReadChoice(stateDir string) (Kept, bool) {
	text, err := os.ReadFile(filepath.Join(stateDir, choiceFile))
	if err != nil {
		return Kept{}, false
	}
	var k Kept
	return k, json.Unmarshal(text, &k) == nil
}

func writeChoice(stateDir string, k Kept) error {
	text, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		return err
	}
	return durable.Replace(filepath.Join(stateDir, choiceFile), append(text, '\n'))
}

// choiceKey condenses all that a decision rests on.
func choiceKey(w Wish, d Discovery, sockets map[string]string) string {
	h := sha256.New()
	boot, _ := bootID()
	var kernel unix.Utsname
	_ = unix.Uname(&kernel)
	fmt.Fprintln(h, w.Names, w.Written, boot, unix.ByteSliceToString(kernel.Release[:]), os.Geteuid(), rights())
	for _, name := range w.toProbe() {
		fmt.Fprintln(h, name, sockets[name])
		if c, ok := d.Find(name); ok {
			fmt.Fprintln(h, c.Path, c.Refused != nil, fileKey(c.Path), fileKey(c.Path+ManifestSuffix))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// fileKey changes when the file does.
func fileKey(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	st := info.Sys().(*syscall.Stat_t)
	return fmt.Sprint(st.Dev, st.Ino, st.Size, st.Mtim, st.Ctim, st.Mode)
}

// rights returns the capabilities of this process as the kernel prints them.
func rights() string {
	text, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := strings.Cut(string(text), "CapEff:")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}
