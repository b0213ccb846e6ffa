// Package viewer keeps the view current: one goroutine follows the events of
// membership, reads node records, applies both and publishes each view before
// it takes the next event.
//
//	membership ──events──► viewer ──Latest, Changed──► data planes, API, DNS
//	                         │
//	                         └──► ceiling of epochs (before a view needs it)
//
// A reader never makes the viewer wait. It asks Changed for a channel, takes
// Latest, and waits for the channel to be closed; what happened in between it
// learns by view.Diff.
package viewer
