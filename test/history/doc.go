// Package history judges what clients of a key-value store with revisions were told:
// whether one order of all calls explains every answer, and whether watches showed
// that order.
//
//	var r history.Recorder
//	call := r.Begin(client, "n1", history.Operation{Kind: history.Put, Key: "k", Value: "unique"})
//	call.End(history.Answer{Revision: 7, Done: true})   // or Unknown, or Refused
//	…
//	err := r.History().Check()
//
// Two judges look at the same calls, and know nothing of each other. One is
// porcupine, key by key: it searches for an order, and has no use for watches. The
// other takes the order that the watches showed and replays it: every answer has to
// be what the store held at the revision that the answer names, and revisions have
// to rise with real time, over all keys.
//
// A call without an answer may have happened at any time since, or never. Where
// there are watches they tell: values are written once, so that an event says whose
// write it was.
package history
