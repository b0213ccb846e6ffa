// Package snap keeps snapshots of the state machine as files.
//
//	TERM-INDEX.snap
//	┌───────┬──────┬──────┬─────┬──────┬─────┬────────┐
//	│ magic │ size │ meta │ ... │ data │ 0   │ SHA-256│
//	└───────┴──────┴──────┴─────┴──────┴─────┴────────┘
//
// Meta and data are pieces of at most a MiB with their length before them; a
// length of 0 ends the data. The hash covers all that is before it. A file gets
// its name when all of it is on disk, so one that has a name is whole, or damaged.
//
// Between servers a snapshot travels as it is on disk, in any pieces: Receive
// takes them and believes nothing before the hash fits.
package snap
