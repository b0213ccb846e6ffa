package rules

// masquerade returns the first rules of the POST chain: whose source becomes an address of
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
//
// One rule serves a pool. Frontends outside may share their address with what others
// lead elsewhere, so each has a rule with its port, in a tree of the same kind.
func (p *Plan) masquerade() string {
	rules := "-m conntrack ! --ctstate DNAT -j RETURN\n-o lo -j RETURN\n"
	if !p.opts.Features.NoAddrType {
		rules += "-m addrtype --src-type LOCAL --limit-iface-out -j RETURN\n"
	}
	for _, pool := range p.opts.pools(p.family) {
		rules += origin(pool) + p.opts.masquerade() + "\n"
	}
	return rules
}

func (o Options) masquerade() string {
	if o.Features.RandomFully {
		return "-j MASQUERADE --random-fully"
	}
	return "-j MASQUERADE"
}
