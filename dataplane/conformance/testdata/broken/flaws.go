package main

import (
	"fmt"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/fake"
)

// flaw is one way to be wrong. Exactly one of the fields behind check is set.
type flaw struct {
	name  string
	check string // that has to reject it

	provider func(*fake.Provider) dataplane.Provider
	service  func(pb.DataPlaneProviderServer) pb.DataPlaneProviderServer
	first    func() // before anything else
	outlives bool   // goes on without its host
	clings   bool   // ends with its host, also if it is to serve on
	anyone   bool   // serves without a cookie
	cuts     bool   // shortens a path that is too long
	stays    bool   // takes no notice of SIGTERM
	outdated bool   // --plugin-info is of another version
}

func find(name string) (flaw, error) {
	for _, f := range flaws() {
		if f.name == name {
			return f, nil
		}
	}
	return flaw{}, fmt.Errorf("flaw %q is not known", name)
}

func flaws() []flaw {
	return []flaw{
		// Reconcile, as the provider's own code may get it wrong.
		{name: "acks-without-applying", check: "reconcile.programs", provider: acksWithoutApplying},
		{name: "forgets-remove", check: "reconcile.removes", provider: forgetsRemove},
		{name: "acks-when-cancelled", check: "deadline.cancel", provider: acksWhenCancelled},
		{name: "lies-after-crash", check: "crash.idle", provider: liesAfterCrash},
		{name: "leaks-descriptors", check: "process.leaks", provider: leaksDescriptors},
		{name: "logs-to-nobody", check: "process.deaf-host", provider: logsToNobody},
		{name: "probe-cleans-up", check: "probe.leaves-nothing", provider: probeCleansUp},

		// Reconcile, as a service without the SDK may get it wrong.
		{name: "applies-before-commit", check: "reconcile.before-commit", service: tapped(appliesBeforeCommit)},
		{name: "wrong-generation", check: "reconcile.answer", service: tapped(wrongGeneration)},
		{name: "accepts-old-generation", check: "reconcile.old-generation", service: tapped(acceptsOldGeneration)},
		{name: "accepts-old-session", check: "session.fenced", service: tapped(acceptsOldSession)},
		{name: "ignores-base-mismatch", check: "reconcile.base-mismatch", service: tapped(ignoresBaseMismatch)},
		{name: "incomplete-removes", check: "content.incomplete-adds", service: tapped(incompleteRemoves)},
		{name: "one-bad-blocks-all", check: "service.bad-alone", service: tapped(oneBadBlocksAll)},
		{name: "empty-without-flag", check: "content.empty-needs-flag", service: tapped(emptyWithoutFlag)},
		{name: "default-for-unknown", check: "service.unknown-enum", service: tapped(defaultForUnknown)},
		{name: "busy-when-idle", check: "reconcile.unchanged", service: tapped(busyWhenIdle)},
		{name: "tells-all", check: "reconcile.unchanged-size", service: tapped(tellsAll)},
		{name: "small-messages", check: "large.snapshot", service: tapped(smallMessages)},
		{name: "queues-reconciles", check: "concurrency.second-reconcile", service: queuesReconciles},
		{name: "fences-too-soon", check: "session.fences-when-applied", service: tapped(fencesTooSoon)},
		{name: "claims-before-release", check: "service.swap", service: tapped(claimsBeforeRelease)},
		{name: "blocks-health", check: "concurrency.questions", service: blocksHealth},
		{name: "bare-errors", check: "errors.reason", service: bareErrors},

		{name: "starts-anywhere", check: "reconcile.begin-first", service: tapped(startsAnywhere)},
		{name: "ignores-digest", check: "reconcile.digest-mismatch", service: tapped(ignoresDigest)},
		{name: "counts-by-one", check: "reconcile.gap", service: tapped(countsByOne)},
		{name: "continues-anyway", check: "session.opens-with-snapshot", service: tapped(continuesAnyway)},
		{name: "configures-itself", check: "reconcile.not-configured", service: configuresItself},
		{name: "no-limit", check: "large.limits", service: noLimit},

		{name: "ignores-completeness", check: "reconcile.completeness", service: tapped(ignoresCompleteness)},
		{name: "starts-over", check: "reconcile.idempotent", service: tapped(startsOver)},
		{name: "refuses-what-it-has", check: "reconcile.told-again", service: tapped(refusesWhatItHas)},
		{name: "knows-one-agent", check: "session.other-agent", service: tapped(knowsOneAgent)},
		{name: "queues-others", check: "concurrency.others", service: queuesOthers},
		{name: "hurries-the-host", check: "concurrency.slow-host", service: hurriesTheHost},
		{name: "sulks-after-deadline", check: "deadline.expired", service: sulksAfterDeadline},

		// What is in a generation.
		{name: "in-order-only", check: "content.order", service: tapped(inOrderOnly)},
		{name: "first-counts", check: "content.duplicate", service: tapped(firstCounts)},
		{name: "upsert-clears", check: "content.keeps-endpoints", service: tapped(upsertClears)},
		{name: "wants-addresses", check: "content.state-only", service: tapped(wantsAddresses)},
		{name: "keeps-while-incomplete", check: "content.incomplete-removal", service: tapped(keepsWhileIncomplete)},
		{name: "completes-with-snapshots", check: "content.delta-completes", service: tapped(completesWithSnapshots)},
		{name: "never-purges", check: "content.complete-purges", service: tapped(neverPurges)},
		{name: "half-of-it", check: "service.keeps-old", service: tapped(halfOfIt)},
		{name: "two-for-one", check: "service.duplicate-frontend", service: tapped(twoForOne)},
		{name: "orders-by-name", check: "service.older-wins", service: tapped(ordersByName)},
		{name: "goes-in-circles", check: "service.loop", service: tapped(goesInCircles)},
		{name: "guesses-ports", check: "service.malformed", service: tapped(guessesPorts)},
		{name: "drops-ipv6", check: "service.families", service: tapped(dropsIPv6)},

		// The other calls.
		{name: "nameless", check: "identity.info", service: nameless},
		{name: "undecided", check: "probe.repeatable", service: undecided},
		{name: "takes-anything", check: "config.rejects-bad", service: takesAnything},
		{name: "untagged", check: "config.instance-id", service: untagged},
		{name: "overlooks-keys", check: "config.unknown-key", provider: overlooksKeys},
		{name: "degraded-somehow", check: "health.answers", service: degradedSomehow},
		{name: "removes-it-again", check: "cleanup.idempotent", service: removesItAgain},
		{name: "info-changes", check: "identity.pure", service: infoChanges},
		{name: "probe-says-nothing", check: "probe.verdict", service: probeSaysNothing},
		{name: "bad-config-replaces", check: "config.keeps-old", service: badConfigReplaces},
		{name: "silent-watch", check: "watch.first", service: silentWatch},
		{name: "skips-numbers", check: "watch.seq", service: skipsNumbers},
		{name: "counters-fall", check: "stats.monotonic", service: countersFall},
		{name: "endless-drain", check: "drain.ends", service: endlessDrain},
		{name: "cleanup-takes-others", check: "cleanup.others", service: cleanupTakesOthers},
		{name: "lingers-on", check: "cleanup.linger", service: lingersOn},
		{name: "dry-run-removes", check: "cleanup.dry-run", service: dryRunRemoves},
		{name: "says-it-cleaned", check: "cleanup.owned", service: saysItCleaned},
		{name: "cleanup-wants-configure", check: "cleanup.unconfigured", service: cleanupWantsConfigure},
		{name: "cleanup-wants-instance", check: "cleanup.all-known", service: cleanupWantsInstance},
		{name: "guesses-scope", check: "cleanup.unknown", service: guessesScope},
		{name: "configure-forgets", check: "config.idempotent", service: configureForgets},
		{name: "keeps-watchers", check: "watch.many", service: keepsWatchers},
		{name: "no-shutdown", check: "shutdown.keep", service: noShutdown},

		// The process.
		{name: "prints-before-handshake", check: "process.handshake", first: func() { fmt.Println("starting up …") }},
		{name: "outlives-its-host", check: "process.host-loss", outlives: true},
		{name: "serves-anyone", check: "process.by-hand", anyone: true},
		{name: "cuts-paths", check: "process.long-path", cuts: true},
		{name: "ignores-sigterm", check: "process.sigterm", stays: true},
		{name: "info-is-outdated", check: "identity.plugin-info", outdated: true},
		{name: "clings-to-its-host", check: "process.host-loss-serve", clings: true},
	}
}
