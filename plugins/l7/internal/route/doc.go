// Package route decides which service an HTTP request is for.
//
// A host is compared in one canonical form only (see Canonical), and a path in
// one decoded form that stands for the very bytes the backend will get (see
// Path): what was matched is what is sent. A Table is immutable, shares what
// did not change with its predecessor, and is read without locks. Neither
// sockets nor clocks are used here.
package route
