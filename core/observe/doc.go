// Package observe gathers the flows of all data planes of a node for people who
// watch, and their counters for people who ask.
//
// A Hub knows the running providers. While nobody observes it asks nothing of
// them. The first observer opens one stream to each, with the finest sample and
// the highest rate that any observer wants; the last one to go ends them. An
// observer that reads slowly loses flows and is told how many: it never delays
// a provider, the hub or another observer.
//
// Each provider has one goroutine from Add until it is lost or the hub closes.
package observe
