package sim

// Invariant is a sentence that holds after every call into a Node.
type Invariant struct {
	Name     string // of the function
	Sentence string
	Check    func(*Observation) error
}

// Invariants lists those that are checked after every call, in the order of
// the checks: what is more precise comes before what it implies. The numbers
// are those of the project's list; 1, 7 (as a lattice), 14, 15, 18, 21 are
// checked by whole acts and by tests.
func Invariants() []Invariant {
	return []Invariant{
		{"Invariant23HeldIsNotAccused", "Nobody accuses a member while the hold of its restart is in force.", Invariant23HeldIsNotAccused},
		{"Invariant23RestartIsNoFailure", "Nobody suspects a node between its announced stop and its start in time.", Invariant23RestartIsNoFailure},
		{"Invariant23HoldIsBounded", "A node waits for a member's restart at most 30 s in each epoch.", Invariant23HoldIsBounded},
		{"Invariant23OnlyTheOwnerHolds", "Nobody waits for a restart that its owner did not announce.", Invariant23OnlyTheOwnerHolds},
		{"Invariant03GoneStayGone", "Dead or left returns to live only at a greater (epoch, incarnation), by a hold, or after it was forgotten.", Invariant03GoneStayGone},
		{"Invariant03GoneAreNotLearned", "Of strangers only live ones are learned, with the identity of their epoch.", Invariant03GoneAreNotLearned},
		{"Invariant07MergeKeepsTheGreater", "After hearing a value, a node holds that value or a greater one, or the member by its hold.", Invariant07MergeKeepsTheGreater},
		{"Invariant02ValuesNeverRegress", "What one node holds of one member never falls, also while it is suspect or dead, unless a hold takes an accusation back.", Invariant02ValuesNeverRegress},
		{"Invariant04OnlyTheOwnerRaises", "Nobody holds a word of a member that its owner never spoke, nor a departure that it never said.", Invariant04OnlyTheOwnerRaises},
		{"Invariant06NotDeadToItself", "A node lists itself once, alive, or left after it said so.", Invariant06NotDeadToItself},
		{"Invariant04OwnerSpeaksInOrder", "An owner refutes one incarnation up, leaves one incarnation up, and speaks no epoch that is not on its disk.", Invariant04OwnerSpeaksInOrder},
		{"Invariant04OwnerOvertakes", "An owner that hears itself accused, or at a word it never spoke, speaks a greater one.", Invariant04OwnerOvertakes},
		{"Invariant05OneIdentityPerEpoch", "A member's name, address and records are those that its owner published in that epoch.", Invariant05OneIdentityPerEpoch},
		{"Invariant06SilenceHasCause", "A node falls silent only if its directory was copied or restored.", Invariant06SilenceHasCause},
		{"Invariant08SuspectsHaveTimers", "Suspects have a timer within its bounds, others have none, and it fires when due, not before.", Invariant08SuspectsHaveTimers},
		{"Invariant09AccusersAreDistinct", "A suspicion counts distinct accusers only, each of which got no answer, and is as long as they make it.", Invariant09AccusersAreDistinct},
		{"Invariant10RumoursAreBounded", "One rumour per subject and class, sent less than the limit, and sent anew only if it is news.", Invariant10RumoursAreBounded},
		{"Invariant11PacketsFitTheMTU", "No datagram exceeds the MTU, no frame its cap.", Invariant11PacketsFitTheMTU},
		{"Invariant13CalmMeansNoSuspicion", "Without faults nobody is suspected, nobody has to refute, and nobody dies.", Invariant13CalmMeansNoSuspicion},
		{"Invariant14OneProbeAPeriod", "A node starts a probe each period, whatever became of the one before.", Invariant14OneProbeAPeriod},
		{"Invariant15ReunionKillsNobody", "When the sides of a partition meet again, what each held dead kills nobody on the other.", Invariant15ReunionKillsNobody},
		{"Invariant16EventsFormAWord", "The events about one member form the word ((joined|revived) (updated|suspected|refuted|held|record)* (died|left))* reaped?, and say what the table shows.", Invariant16EventsFormAWord},
		{"Invariant21BadInputChangesNothing", "Input that is refused leaves no trace.", Invariant21BadInputChangesNothing},
		{"Invariant22NothingIsLeftBehind", "Probes, relays and streams under way are bounded, each stream is known until it ends, and no timer is overdue after a tick.", Invariant22NothingIsLeftBehind},
	}
}
