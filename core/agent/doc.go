// Package agent puts the parts of Fairlead together into one process: it is
// the only place that knows all of them.
//
//	open    sockets of the API and HTTP, then membership: what can fail for
//	        reasons of this host fails before other nodes hear of us
//	run     until a signal, the end of the context, or Leave over the API
//	stop    say left, close in reverse order, both within shutdown_timeout
//
// Signals: SIGTERM and SIGINT stop gracefully, a second one at once; SIGHUP
// reads the configuration again.
package agent
