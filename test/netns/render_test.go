package netns

import (
	"strings"
	"testing"
)

// TestRender needs no root: it shows which rules the switch would get.
func TestRender(t *testing.T) {
	f := faults{cut: map[path]bool{{"p2", "p1"}: true, {"p1", "p3"}: true}, loss: map[path]int{}}
	f.setLoss(path{"p1", "p2"}, 10_000)
	f.setLoss(path{"p2", "p3"}, 25)
	f.setLoss(path{"p3", "p1"}, 25)
	f.setLoss(path{"p3", "p1"}, 0)
	_, rules, _ := strings.Cut(f.render(), "nd-neighbor-advert } accept\n")
	const want = `add rule bridge faults pass iifname "p1" oifname "p3" counter name cut drop
add rule bridge faults pass iifname "p2" oifname "p1" counter name cut drop
add rule bridge faults pass iifname "p1" oifname "p2" numgen random mod 10000 <= 9999 counter name lost drop
add rule bridge faults pass iifname "p2" oifname "p3" numgen random mod 10000 <= 24 counter name lost drop
`
	if rules != want {
		t.Errorf("rules are\n%swant\n%s", rules, want)
	}
}
