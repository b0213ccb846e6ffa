// Package mutant shows that tests find the bugs they are there to find: it plants
// one bug after the other in a copy of the sources, runs the test that ought to
// notice, and fails if that passes.
//
// A mutant is a file NAME.patch in a package's testdata/mutants: what the bug is in
// words, who finds it, and the bug as a unified diff.
//
//	# The log is written, and nobody waits for the disk.
//	# test: TestCrashes
//	# caught by: durable
//	--- a/core/raft/wal/log.go
//	+++ b/core/raft/wal/log.go
//	@@ @@
//	-	if err := l.file.Sync(); err != nil {
//	+	if err := error(nil); err != nil {
//
// Where a hunk belongs is a matter of its lines alone, so that code which moved
// needs no new patch. A hunk that fits nowhere, or at two places, fails the test.
//
// Nothing is written to the sources: the copies take their place in a build of
// the tests with -overlay. Packages that do not depend on what was changed come
// from the build cache, and so does a mutant that was built before.
package mutant
