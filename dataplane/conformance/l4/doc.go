// Package l4 asks a data plane of layer 4 whether its traffic goes where the
// contract says: by connections and datagrams, against real servers, on a real
// kernel. Package conformance asks about the answers of the provider; this one
// about what it does.
//
// From a test, as root:
//
//	func TestTraffic(t *testing.T) {
//		l4.Test(t, l4.Target{Exec: "bin/fairlead-dataplane-mine"}, l4.Profile{}, l4.Options{})
//	}
//
// From a shell, `fairlead plugin conform --traffic --exec PATH`.
//
// # Its world
//
// The provider runs in a network namespace, and a mount namespace with a BPF file
// system and a /run of its own. If its configuration has a setting "cgroup", it
// and this process are in a child cgroup that the suite makes, and the setting
// names that. Instances are servers in that namespace (the host), in one whose
// packets it forwards (a container), and in one elsewhere (a remote host). The
// default route leads to a neighbour that is not there, so that a packet to a VIP
// which nobody translated is lost. All of it is gone with this process, however
// that ends; an empty cgroup is removed by the next run.
//
// # What is not tested
//
// A Profile excludes features, each with a reason that is printed with the checks
// that are skipped. What a provider claims by its Info cannot be excluded, and a
// service that it does not program fails the check that asked for it.
//
// # Time and chance
//
// A check waits for what it demands, and fails late rather than early; only a
// refusal has to be quick, in the best of several tries. Random choices are
// judged such that a plane which is right fails once in a billion runs. The
// sequence of the model comes from Options.Seed, which the evidence names.
package l4
