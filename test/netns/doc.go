// Package netns builds small networks out of Linux network namespaces, so that tests run real agents as real processes with
// addresses, cables and faults of their own and never touch the network of the machine.
//
// # Picture
//
//	          switch namespace
//	   ┌──────────── br0 ────────────┐     nft table "bridge faults": cuts and loss,
//	   p1            p2             pN      by port, so they survive a change of address
//	   │             │              │      (veth pairs)
//	  eth0          eth0           eth0
//	10.77.0.1     10.77.0.2     10.77.0.N  node namespaces n1 … nN
//	fd77::1       fd77::2       fd77::N
//
// The bridge and every veth end are born inside these namespaces: the namespace of the machine gets no device, no route and no
// rule. There is no way out either: nodes have no default route.
//
// # Use
//
//	topo := netns.New(t, netns.Options{Nodes: 3})        // skips when not root, see [Require]
//	a, b := topo.Node(0), topo.Node(1)
//	p := a.Start(fairlead, []string{"agent", "--config", file})
//	topo.Cut(a, b)                                       // a's packets no longer reach b; b's still reach a
//	topo.Heal()
//	p.Kill()
//
// Methods without an error result end the test with Fatalf when the kernel refuses them; call those from the goroutine of the
// test. Faults describe a state, not a step: saying them twice changes nothing.
//
// # What is left behind
//
// Nothing, when the test ends, fails or panics: the clean-up registered by [New] kills every process of the nodes, reaps them
// and removes the namespaces. When the test binary itself is killed the kernel kills the processes it started (parent death
// signal), and the next [New] of any test removes the namespaces ([Sweep]): their names carry the process that made them.
//
// Processes and sockets see the namespace through sockets and /proc/net. /sys stays that of the machine.
//
// # Whole packages
//
// Tests that attach programs to cgroups or pin maps use [Main] in their TestMain: it runs all tests of the package in a network
// namespace, a BPF file system and a cgroup of their own, and [Isolated] tells a test which cgroup that is.
package netns
