// Package identity is how agents of one cluster know each other: by secrets that
// all of them have.
//
//	secret_file ──► Secrets ──HKDF──► gossip keys
//	                       └──HKDF──► a CA for each secret ──► this node's certificate
//	                                        └──► whom to believe
//
// No certificate is handed out: whoever has a secret has the CA's key, and signs
// its own certificate for its node id, good for a day to either side of now and
// made anew at half-life. The first secret of the file signs and all are believed,
// so secrets change without an outage: add the new one on all nodes, make it the
// first on all, then remove the old one.
//
// # What this means
//
// Whoever has a secret can be anyone. There is no way to take a certificate back
// but to change the secret.
package identity
