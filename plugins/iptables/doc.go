// Package iptables is the data plane that works where eBPF cannot: rules in the nat
// tables of the kernel lead a connection to a VIP to a living endpoint. README.md
// says what that means for users.
//
// # Picture
//
//	Reconcile ─► rules (pure: what should stand) ─► one iptables-restore per family ─┐
//	         └─► routes to VIPs, conntrack of UDP                                    ▼
//	keeper ── a fingerprint each second, the whole table now and then ─► the nat tables of the kernel
//	Health ── dials a frontend of the provider's own ────────────────────────────────┘
//	journal ── what was applied, for the next process, which compares it with the tables
//
// The turn, a channel, guards all that alters the system, and is waited for no longer
// than a call may take; what State, Stats and Health tell is published under a mutex
// of its own. The goroutines are the keeper, and the listener that Health dials. The
// first generation starts both, or Configure where a process before left something;
// Shutdown and Cleanup end them.
package iptables
