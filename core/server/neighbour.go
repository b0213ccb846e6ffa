package server

import (
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/record"
)

// Neighbour is another node, as gossip has it.
type Neighbour struct {
	ID     model.NodeID
	Name   string
	State  model.State
	Since  time.Time      // of State
	Server *record.Server // its part in the store; nil: none that is known
}

// neighbours returns those that may have a part in the store.
func (c *Config) neighbours() []Neighbour {
	if c.Neighbours == nil {
		return nil
	}
	return c.Neighbours()
}
