package view_test

import (
	"math"
	"testing"

	"github.com/fairlead/fairlead/core/view"
)

// However often a node restarts and whatever writes are lost, no epoch is used
// twice as long as it was reserved.
func TestEpochsRiseOverRestarts(t *testing.T) {
	var disk, last uint64
	for run := range 5 {
		epochs, first := view.NewEpochs(disk)
		if first <= last {
			t.Fatalf("run %d starts at %d, %d was used", run, first, last)
		}
		writes := 0
		for epoch := first; epoch < first+3*view.EpochBlock+7; epoch++ {
			if want := epochs.Want(epoch); want != 0 {
				if want <= epoch {
					t.Fatalf("ceiling %d for epoch %d", want, epoch)
				}
				disk = want
				epochs.Written(want)
				writes++
			}
			if !epochs.Reserved(epoch) || epoch >= disk {
				t.Fatalf("epoch %d is not reserved, ceiling %d", epoch, disk)
			}
			last = epoch
		}
		if writes > 8 {
			t.Errorf("run %d wrote %d times", run, writes)
		}
	}
}

func TestEpochsOfADiskThatDoesNotObey(t *testing.T) {
	epochs, first := view.NewEpochs(0)
	epochs.Written(epochs.Want(first))
	epoch := first
	for epochs.Want(epoch) == 0 {
		epoch++
	}
	if !epochs.Reserved(epoch) || !epochs.Reserved(epoch+view.EpochBlock/2-2) {
		t.Errorf("a write is wanted at %d, when less than half a block is left", epoch)
	}
	if e, _ := view.NewEpochs(math.MaxUint64 - 1); e.Want(math.MaxUint64-1) != math.MaxUint64 {
		t.Error("the ceiling overflows")
	}
}
