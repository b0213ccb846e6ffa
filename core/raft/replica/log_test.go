package replica

import (
	"math"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
)

func entryOf(index, term uint64) *pb.Entry {
	return &pb.Entry{Index: new(index), Term: new(term), Data: []byte("data")}
}

// What Entries gave out stays as it is, whatever is appended or replaced later:
// the transport encodes it beside that.
func TestEntriesGivenOutStay(t *testing.T) {
	l := &log{}
	l.install(&pb.SnapshotMetadata{Index: new(uint64(1)), Term: new(uint64(1))})
	for i := uint64(2); i <= 10; i++ {
		l.append([]*pb.Entry{entryOf(i, 1)})
	}
	given, err := l.Entries(2, 11, math.MaxUint64)
	if err != nil {
		t.Fatal(err)
	}
	for term := uint64(2); term < 9; term++ {
		for i := term + 2; i <= 12; i++ {
			l.append([]*pb.Entry{entryOf(i, term)})
		}
	}
	for i, e := range given {
		if e.GetIndex() != uint64(i)+2 || e.GetTerm() != 1 {
			t.Errorf("entry %d is now %v", i+2, e)
		}
	}
	if got, _ := l.Term(12); got != 8 {
		t.Errorf("the last entry is of term %d", got)
	}
}

// An append costs what it appends, not what is there.
func TestAppendsDoNotCopyTheLog(t *testing.T) {
	l := &log{}
	l.install(&pb.SnapshotMetadata{Index: new(uint64(1)), Term: new(uint64(1))})
	arrays, last := 0, &pb.Entry{}
	var first **pb.Entry
	for i := uint64(2); i < 10_000; i++ {
		last = entryOf(i, 1)
		l.append([]*pb.Entry{last})
		if first != &l.entries[0] {
			first = &l.entries[0]
			arrays++
		}
	}
	if arrays > 100 || l.last() != last.GetIndex() {
		t.Errorf("%d arrays for %d entries", arrays, l.last())
	}
}
