package sim

import (
	"fmt"
	"slices"
	"strings"
)

// Tally counts what was done to a cluster and what it did. A test that never
// lost a packet has shown nothing about loss, so those kinds that Required
// lists have to be above zero in the end.
type Tally struct {
	counts map[string]uint64
}

// The kinds of a Tally. Faults are what the world did, effects what the nodes
// made of it.
const (
	FaultLoss          = "loss"
	FaultDelay         = "delay"
	FaultDuplicate     = "duplicate"
	FaultReorder       = "reorder"
	FaultCorrupt       = "corrupt"
	FaultCut           = "cut, one way"
	FaultPartition     = "partition"
	FaultPause         = "pause"
	FaultCrash         = "crash of a process"
	FaultPowerOff      = "crash of a host"
	FaultRestart       = "restart"
	FaultPlanned       = "restart announced"
	FaultMove          = "restart at a new address"
	FaultRestored      = "restart from an old directory"
	FaultCopied        = "start from a copied directory"
	FaultReinstall     = "new id at an old address"
	FaultLeave         = "leave"
	FaultRejoin        = "rejoin"
	FaultJoin          = "join"
	FaultRecord        = "record"
	FaultStreamRefused = "stream refused"
	FaultStreamFailed  = "stream failed"
	FaultStreamHalf    = "stream cut half way"
	FaultNoise         = "random packet"

	EffectIndirect   = "probe that asks helpers"
	EffectNack       = "nack"
	EffectPauseSeen  = "pause noticed"
	EffectAccusers   = "suspicion with 2 or more accusers"
	EffectReplaced   = "replaced at its address"
	EffectFullPacket = "packet within 30 bytes of the MTU"
)

// Required lists the kinds that a whole simulation has to have seen.
func Required() []string {
	return []string{
		FaultLoss, FaultDelay, FaultDuplicate, FaultReorder, FaultCorrupt, FaultCut, FaultPartition, FaultPause,
		FaultCrash, FaultPowerOff, FaultRestart, FaultPlanned, FaultMove, FaultRestored, FaultCopied, FaultReinstall, FaultLeave,
		FaultRejoin, FaultJoin, FaultRecord, FaultStreamRefused, FaultStreamFailed, FaultStreamHalf, FaultNoise,
		EffectIndirect, EffectNack, EffectPauseSeen, EffectAccusers, EffectReplaced, EffectFullPacket,
		"event suspected", "event refuted", "event died", "event left", "event revived", "event reaped",
		"event epoch-jumped", "event cloned", "event updated", "event held",
	}
}

// Rare lists those of Required that a run of a tenth of the seeds may miss: few
// seeds lead to them, and which ones changes with every draw.
func Rare() []string {
	return []string{EffectReplaced, FaultReinstall, "event reaped", "event cloned"}
}

// NewTally returns one with all counts zero.
func NewTally() *Tally { return &Tally{counts: map[string]uint64{}} }

// Count adds one to kind.
func (t *Tally) Count(kind string) { t.counts[kind]++ }

// Add adds the counts of o.
func (t *Tally) Add(o *Tally) {
	for kind, n := range o.counts {
		t.counts[kind] += n
	}
}

// Missing returns those of kinds that never happened.
func (t *Tally) Missing(kinds []string) []string {
	var missing []string
	for _, kind := range kinds {
		if t.counts[kind] == 0 {
			missing = append(missing, kind)
		}
	}
	return missing
}

// String prints the counts, one a line, by name.
func (t *Tally) String() string {
	kinds := make([]string, 0, len(t.counts))
	for kind := range t.counts {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	var b strings.Builder
	for _, kind := range kinds {
		fmt.Fprintf(&b, "%9d  %s\n", t.counts[kind], kind)
	}
	return b.String()
}
