package hostcheck

import "fmt"

// fullConntrack is how full the connection table may be, in percent.
const fullConntrack = 80

func backend(f Facts) []Finding {
	const check = "iptables"
	n := f.Netfilter
	switch {
	case n.Iptables == "":
		return lacking(f, "iptables", check, "not installed", "apt-get install iptables")
	case n.Legacy.Why != "" || n.NFT.Why != "":
		why := n.Legacy.Why
		if why == "" {
			why = n.NFT.Why
		}
		return unknown(check, n.Iptables+"; whether both variants have rules: "+why)
	case n.Legacy.Value > 0 && n.NFT.Value > 0:
		return found(check, Warning, fmt.Sprintf("%s; others have %d rules in the legacy variant and %d in the one of nftables", n.Iptables, n.Legacy.Value, n.NFT.Value),
			"have all of them use one: iptables-legacy-save and iptables-nft-save show whose they are")
	}
	return ok(check, fmt.Sprintf("%s; others have %d legacy rules and %d of nftables", n.Iptables, n.Legacy.Value, n.NFT.Value))
}

func xtablesLock(f Facts) []Finding {
	const check = "xtables-lock"
	switch v := f.Netfilter.LockHeld; {
	case v.Why != "":
		return unknown(check, v.Why)
	case v.Value:
		return found(check, Warning, "held by another process just now", "if it stays so, find out who: fuser -v /run/xtables.lock")
	}
	return ok(check, "free")
}

func conntrack(f Facts) []Finding {
	const check = "conntrack"
	v := f.Netfilter.Conntrack
	switch {
	case v.Why != "":
		return unknown(check, v.Why)
	case v.Value.Max == 0:
		return ok(check, "not loaded")
	}
	seen := fmt.Sprintf("%d of %d connections", v.Value.Count, v.Value.Max)
	if v.Value.Count*100 >= v.Value.Max*fullConntrack {
		return found(check, Warning, seen, fmt.Sprintf("sysctl -w net.netfilter.nf_conntrack_max=%d, before new connections are dropped", 2*v.Value.Max))
	}
	return ok(check, seen)
}
