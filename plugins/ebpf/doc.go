// Package ebpf is the data plane that works at the sockets: programs in the kernel
// replace the address that an application connects or sends to by that of a living
// endpoint, before the first packet. README.md says what that means for users.
//
// # Picture
//
//	Reconcile ─► layout.Table (pure: what stands where) ─► datapath (maps, links, pins)
//	                                                            ▲
//	keeper ── compares the kernel with the table, repairs ──────┤
//	reaper ── ends connections to endpoints that are gone ──────┘
//	Health ── dials a frontend of the provider's own
//
// One mutex guards all of it; Health and the flow reader do without. The goroutines
// are the keeper, which also wakes the reaper, and one reader of flows while anybody
// watches. Configure starts them, Shutdown and a new Configure end them.
package ebpf
