package iptables

import (
	"time"

	"github.com/coreos/go-iptables/iptables"

	"github.com/fairlead/fairlead/plugins/iptables/internal/host"
	"github.com/fairlead/fairlead/plugins/iptables/internal/rules"
)

// dearRead is from how long a reading is dear: then a change of the nft ruleset, which
// may be of any table of anybody, is followed by a look at the chains that others
// flush, and not at all.
const dearRead = 200 * time.Millisecond

// stumps reports whether the base chains lead to a plan whose roots are not empty. An
// error is taken for no: then all is read.
func stumps(t host.Tools, f rules.Family, plan *rules.Plan) bool {
	protocol := iptables.ProtocolIPv4
	if f == rules.IPv6 {
		protocol = iptables.ProtocolIPv6
	}
	ipt, err := iptables.New(iptables.IPFamily(protocol), iptables.Path(t.Command(hostFamily(f))), iptables.Timeout(probeLock))
	if err != nil {
		return false
	}
	for _, jump := range plan.Jumps() {
		if there, err := ipt.Exists("nat", jump.Base, jump.Rule...); err != nil || !there {
			return false
		}
		list, err := ipt.List("nat", jump.Rule[len(jump.Rule)-1])
		if err != nil || len(list) < 2 { // the first line declares it
			return false
		}
	}
	return true
}
