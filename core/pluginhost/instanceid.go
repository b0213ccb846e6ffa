package pluginhost

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/core/durable"
)

// instanceSuffix is of the file, in the state directory, with the instance id of
// a plugin that was adopted with another one than the agent would give it.
const instanceSuffix = ".instance"

// instanceID returns the tag of what a plugin makes in the kernel. It stays with
// the plugin: under another tag nobody would ever clean up what it made before.
func (h *Host) instanceID(name string) string {
	text, err := os.ReadFile(filepath.Join(h.cfg.StateDir, name+instanceSuffix))
	if id := strings.TrimSpace(string(text)); err == nil && id != "" {
		return id
	}
	return h.cfg.InstanceID
}

// keepInstanceID remembers the tag of a plugin that an agent before us gave it,
// one that had this run directory and lost its data directory since.
func (h *Host) keepInstanceID(name, id string) {
	if id == h.instanceID(name) {
		return
	}
	h.log.Info("the plugin keeps the instance id that it has", "plugin", name, "instance_id", id)
	if err := durable.Replace(filepath.Join(h.cfg.StateDir, name+instanceSuffix), []byte(id+"\n")); err != nil {
		h.log.Warn("the instance id of a plugin is not kept: after its restart, what it made before has to be cleaned up by hand", "plugin", name, "instance_id", id, "error", err)
	}
}
