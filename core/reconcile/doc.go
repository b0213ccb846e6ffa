// Package reconcile keeps data planes at the view. One Loop belongs to one
// provider and outlives its processes:
//
//	view ──project──► snapshot ──generation──► Reconcile ──► provider
//	                     │                         │
//	                     └── what it has ◄── result, State
//
// It calls at every tick, as a sign of life, and when the view changed, with as
// little as will do:
//
//	what the provider has      what is sent
//	the snapshot itself        Begin and Commit, "unchanged"
//	an earlier snapshot        the changes from there
//	something else, unknown    the whole snapshot
//
// What a provider has is believed from its answer to a generation. After
// anything else, be it an error, a missed deadline or a new process, State is
// asked first: a generation that was applied although its answer was lost is
// where the loop goes on. An answer that names another generation than the one
// sent is a lie, and a whole snapshot follows.
//
// # Providers that pull
//
// Source serves the same to providers that run by themselves: Follow opens with
// their State and Report brings their answers.
//
// # Completeness
//
// Only a complete view may take services away, and only a view that has heard
// of its cluster, or knows that there is none, may take away all of them: one
// that merely waited long enough stays incomplete as long as it is empty.
package reconcile
