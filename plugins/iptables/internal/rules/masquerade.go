package rules

// led returns the first rules of the POST chain: which packets were led by us. One
// rule serves a pool. Frontends outside may share their address with what others lead
// elsewhere, so each has a rule with its port, in a tree of the same kind.
func (p *Plan) led() string {
	rules := "-m conntrack ! --ctstate DNAT -j RETURN\n"
	for _, pool := range p.opts.pools(p.family) {
		rules += origin(pool) + "-g " + rootName(p.tag, source) + "\n"
	}
	return rules
}

// source returns the rules of the SOURCE chain, which packets that we led come to:
// whose source becomes an address of this host.
//
// The answer of an endpoint has to come back through this host, which alone can turn
// its source into the frontend again. Where that happens by itself the client's
// address stays:
//
//   - what is led to this host itself: it leaves by no other device, and forwarded
//     packets that are delivered here do not come by at all;
//   - what leaves from an address of the device it leaves by, as a socket of this host
//     does as a rule. Where the route to the VIP led over another device than that to
//     the endpoint, the source is of the wrong one (or the VIP itself, or 127.0.0.1).
//
// All else has to change: an endpoint next to the client would answer it directly,
// one that is the client itself would answer itself, and whether an answer to a
// stranger's address comes by here is nothing that a host can know.
//
// A socket of this host that is led to a loopback address becomes one of the loopback
// device as well. A server that listens on all addresses answers a datagram from the
// address that its route to the client prefers: to another address of this host that
// is not the one the datagram was for, and nobody would know the answer.
func (o Options) source(f Family) string {
	loopback := single(f.loopback())
	if f == IPv4 {
		loopback, _ = f.loopback().Prefix(8) // cannot fail: it is that long
	}
	rules := "! -s " + loopback.String() + " -d " + loopback.String() + " -o lo -j SNAT --to-source " + f.loopback().String() + "\n-o lo -j RETURN\n"
	if !o.Features.NoAddrType {
		rules += "-m addrtype --src-type LOCAL --limit-iface-out -j RETURN\n"
	}
	rules += "-j MASQUERADE"
	if o.Features.RandomFully {
		rules += " --random-fully"
	}
	return rules + "\n"
}
