package rules

import (
	"github.com/fairlead/fairlead/dataplane"
)

// masquerade returns the rules of the POST chain: whose source becomes an address of
// this host.
//
// The answer of an endpoint has to come back through this host, which alone can turn
// its source into the frontend again. Where that happens by itself the client's
// address stays:
//
//   - what was not led, or is led to this host itself: it leaves by no other device,
//     and forwarded packets that are delivered here do not come by at all;
//   - what leaves from an address of the device it leaves by, as a socket of this host
//     does as a rule. Where the route to the VIP led over another device than that to
//     the endpoint, the source is of the wrong one (or the VIP itself, or 127.0.0.1).
//
// All else has to change: an endpoint next to the client would answer it directly,
// one that is the client itself would answer itself, and whether an answer to a
// stranger's address comes by here is nothing that a host can know.
func (p *Plan) masquerade(leaves [post][]leaf) string {
	body := "-m conntrack ! --ctstate DNAT -j RETURN\n-o lo -j RETURN\n"
	if !p.opts.Features.NoAddrType {
		body += "-m addrtype --src-type LOCAL --limit-iface-out -j RETURN\n"
	}
	target := "-j MASQUERADE"
	if p.opts.Features.RandomFully {
		target += " --random-fully"
	}
	pools := p.pools()
	for _, pool := range pools {
		body += translated + pool.String() + " " + target + "\n"
	}
	t := tree{family: p.family, tag: p.tag, match: byOrigin{}, chains: p.chains}
	return body + t.root(newEntries(p.outside(leaves, target)))
}

// outside are the frontends that no pool covers. Their addresses may be shared with
// what others lead elsewhere, so the port counts.
func (p *Plan) outside(leaves [post][]leaf, target string) []leaf {
	var found []leaf
	seen := make(map[dataplane.Binding]bool)
	pools := p.pools()
	own := p.opts.Own.Frontend
	for h := range post {
	next:
		for _, l := range leaves[h] {
			if l.refused || l.frontend.Addr == own || seen[l.frontend] {
				continue
			}
			for _, pool := range pools {
				if pool.Contains(l.frontend.Addr.Addr()) {
					continue next
				}
			}
			seen[l.frontend] = true
			found = append(found, leaf{frontend: l.frontend, target: target})
		}
	}
	return found
}
