package membership

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/fairlead/fairlead/core/durable"
	"github.com/fairlead/fairlead/core/model"
)

// ReadNodeID returns the id of the node whose data directory this is, 0 if there is
// none yet. It takes no lock and alters nothing: an agent may run meanwhile.
func ReadNodeID(dir string) (model.NodeID, error) {
	name := (&dataDir{path: dir}).file(nodeFile)
	data, err := durable.Read(name, nodeFileSize)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	var n nodeJSON
	if err == nil {
		err = json.Unmarshal(data, &n)
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %s cannot be used: %w", ErrDataDir, name, err)
	}
	return n.ID, nil
}
