package pluginhost

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/fairlead/fairlead/core/durable"
	"github.com/fairlead/fairlead/dataplane"
)

// ownedFile lists, in the state directory, the providers that may have something in
// the system: written down before the first of it is made, and taken out when it was
// cleaned. So one that is not chosen any more is cleaned whatever came between: a
// crash, a reboot, another choice.
const ownedFile = "owned.json"

// owned is a provider under the tag of what it makes.
type owned struct {
	Name     string            `json:"name"`
	Instance string            `json:"instance"`
	Layers   []dataplane.Layer `json:"layers"`
}

func (o owned) is(name, instance string) bool { return o.Name == name && o.Instance == instance }

// readOwned returns the list of a state directory, none if it cannot be read.
func readOwned(stateDir string) ([]owned, error) {
	text, err := os.ReadFile(filepath.Join(stateDir, ownedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var list []owned
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		return nil, fmt.Errorf("pluginhost: %s cannot be used: %w; what providers that are not chosen any more left has to be removed by fairlead cleanup", filepath.Join(stateDir, ownedFile), err)
	}
	return list, nil
}

// own writes down that a provider may have something in the system from now on.
func (h *Host) own(o owned) {
	h.alterOwned(func(list []owned) []owned {
		if i := slices.IndexFunc(list, func(p owned) bool { return p.is(o.Name, o.Instance) }); i >= 0 {
			if slices.Equal(list[i].Layers, o.Layers) {
				return list
			}
			list = slices.Delete(list, i, i+1)
		}
		return append(list, o)
	})
}

// disown writes down that nothing of it is left.
func (h *Host) disown(o owned) {
	h.alterOwned(func(list []owned) []owned {
		return slices.DeleteFunc(list, func(p owned) bool { return p.is(o.Name, o.Instance) })
	})
}

func (h *Host) alterOwned(change func([]owned) []owned) {
	h.ownedMu.Lock()
	defer h.ownedMu.Unlock()
	next := change(slices.Clone(h.owned))
	if slices.EqualFunc(next, h.owned, func(a, b owned) bool { return a.is(b.Name, b.Instance) && slices.Equal(a.Layers, b.Layers) }) {
		return
	}
	h.owned = next
	text, err := json.MarshalIndent(next, "", "  ")
	if err == nil {
		err = durable.Replace(filepath.Join(h.cfg.StateDir, ownedFile), append(text, '\n'))
	}
	if err != nil {
		h.log.Warn("it is not kept which data planes have something in the system: after a crash, fairlead cleanup removes what they left", "error", err)
	}
}

// ownedNow returns the list.
func (h *Host) ownedNow() []owned {
	h.ownedMu.Lock()
	defer h.ownedMu.Unlock()
	return slices.Clone(h.owned)
}
