// Package control is what the leader of the store does for the cluster, and nobody
// else: it keeps the servers at what is aimed at.
//
// A Controller runs beside each server and does nothing unless that leads. What it
// decides is in core/control/voters; what makes a decision safe though another one may
// lead by now is Raft's: a change of the membership is an entry of the leader's log.
package control
