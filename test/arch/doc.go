// Package arch states the architecture of this repository as checks, and its
// tests hold the repository to them. ARCHITECTURE.md shows the picture; what
// follows is the part that a machine can judge:
//
//   - Walls: which package may import which, and why (walls.go).
//   - Pure: what core/swim and its like must not do. They are values that are
//     given time, randomness and packets, so that a test can drive them through
//     any history, and through the same one twice (pure.go).
//   - State: no init functions and no package variable that changes in what is
//     shipped (state.go).
//   - Exits: no panic, no process exit and no global logger, registry or mux
//     outside of commands (exits.go).
//   - Metrics: declared in one metrics.go per package and documented in
//     docs/metrics.md (counters.go).
//   - Docs: every package says what it is; every command line, flag and make
//     target that a document shows exists (packagedoc.go, documents.go).
//   - Sleeps: tests wait for conditions (sleeps.go).
//
// Every check is tried on code that breaks it: testdata/src, and the tables in
// the tests.
package arch
