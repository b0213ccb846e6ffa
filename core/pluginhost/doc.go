// Package pluginhost finds, chooses, starts and watches the providers of a
// node: the processes that forward its traffic.
//
// # Where providers come from
//
// Discover lists the files fairlead-dataplane-NAME and says of each why it is
// used, hidden by another, or refused. A manifest beside a file pins the bytes
// and the capabilities. Host.Start probes what the configuration names, and
// Decide chooses. A provider that runs by itself is not a file but a socket: it
// is adopted, and never ended.
//
// # The life of a provider
//
//	             ┌───────────────────────────────────┐
//	             ▼                                   │ after the delay
//	discovered ─► starting ─► configured ─► ready    │
//	             │    │           │          │ lost: exit, broken connection,
//	             │    └───────────┴──────────┤ no answer to health
//	             │     failed                ▼
//	             │                  backoff or crash-loop; refused or rejected,
//	             │                  where only another file or setting helps
//	             ▼
//	          stopped (Host.Stop, from any state)
//
// Backoff doubles from 100 ms to 30 s and begins anew after 60 s of health.
// Five losses within 60 s are a crash loop: it is retried at the longest delay,
// and shown as what it is. Whoever reconciles is told of each life by OnReady,
// and of its end by Provider.Lost. The kernel keeps what was programmed.
//
// # What a child can rely on, and what holds for it
//
// It has a session of its own, four variables of the agent's environment beside
// those of the handshake, and a pipe that ends with the agent. Its end is noticed
// from the process, not from its pipes; what it leaves in its process group ends
// with it. Its standard error goes to the log, as fast as that may be, and is
// never a reason for it to block. When the agent dies the kernel tells it.
package pluginhost
