package view

import "math"

// EpochBlock is how many epochs are reserved at a time, so that few views have
// to wait for a disk.
const EpochBlock = 65_536

// Epochs is the ceiling below which epochs were reserved. It is written
// durably; after a restart views go on at the ceiling, so that no epoch is used
// twice.
type Epochs struct {
	ceiling uint64
}

// NewEpochs takes up the ceiling that the last run wrote, 0 if there was none.
// first is the epoch to start with.
func NewEpochs(ceiling uint64) (e Epochs, first uint64) {
	return Epochs{ceiling: ceiling}, max(1, ceiling)
}

// Want returns the ceiling to write for views of this epoch, or 0 if half a
// block is still reserved: the other half is for a disk that does not obey.
func (e Epochs) Want(epoch uint64) uint64 {
	if e.ceiling > epoch && e.ceiling-epoch >= EpochBlock/2 {
		return 0
	}
	if epoch > math.MaxUint64-EpochBlock {
		return math.MaxUint64
	}
	return epoch + EpochBlock
}

// Written says that a ceiling is on disk.
func (e *Epochs) Written(ceiling uint64) { e.ceiling = max(e.ceiling, ceiling) }

// Reserved reports whether an epoch will never be used again.
func (e Epochs) Reserved(epoch uint64) bool { return epoch < e.ceiling }
