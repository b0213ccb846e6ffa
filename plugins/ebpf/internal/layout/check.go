package layout

import (
	"fmt"

	"github.com/fairlead/fairlead/dataplane"
)

// Check compares the frontends in memory with what this table wrote there. The error
// says what is different.
func (t *Table) Check() error {
	there := 0
	for f, x := range t.indexes {
		for entry := range uint32(len(x.foreign)) {
			b, is, err := x.Binding(entry)
			if err != nil {
				return err
			}
			if !is {
				continue
			}
			if fe := t.frontends[b]; fe == nil || fe.entry != entry {
				return fmt.Errorf("%v entry %d is of %v/%v, which is not there", Family(f), entry, b.Addr, b.Protocol)
			}
			there++
		}
	}
	if there != len(t.frontends) {
		return fmt.Errorf("there are %d frontends, not %d", there, len(t.frontends))
	}
	for b, fe := range t.frontends {
		home, foreign := t.index(b).Published(fe.entry)
		wantHome, wantForeign := t.said(b, fe)
		if home != wantHome || foreign != wantForeign {
			return fmt.Errorf("frontend %v/%v says %x and %x, not %x and %x", b.Addr, b.Protocol, home, foreign, wantHome, wantForeign)
		}
	}
	return nil
}

// Repair makes right what Check found.
func (t *Table) Repair() {
	for _, x := range t.indexes {
		for entry := range uint32(len(x.foreign)) {
			b, is, err := x.Binding(entry)
			if fe := t.frontends[b]; err != nil || is && (fe == nil || fe.entry != entry) {
				x.Leave(entry)
			}
		}
		x.mend()
	}
	for _, g := range t.gone {
		t.index(g.binding).Leave(g.entry)
	}
	for b, fe := range t.frontends {
		x := t.index(b)
		home, foreign := t.said(b, fe)
		x.Publish(fe.entry, home, foreign)
		x.Lead(fe.entry, b)
	}
}

// said is what should be said of a frontend.
func (t *Table) said(b dataplane.Binding, fe *frontend) (home, foreign Publication) {
	return words(fe.owner.sets[FamilyOf(b.Addr.Addr())], fe.owner.affinity > 0, fe.refuses)
}

// words are what is said of a frontend.
func words(sets [Scopes]place, sticky, refuses bool) (home, foreign Publication) {
	flags := uint16(Published)
	if refuses {
		flags |= Refuses
	}
	if sticky {
		flags |= Sticky
	}
	return NewPublication(sets[Home].at, sets[Home].count, flags), NewPublication(sets[Foreign].at, sets[Foreign].count, flags)
}
