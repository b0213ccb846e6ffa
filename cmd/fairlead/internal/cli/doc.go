// Package cli is the command line of Fairlead as a function of its arguments
// and an [Env], so that tests run commands in their own process.
//
// Every command that lists something takes -o json; text is for people, and
// its columns may change. Exit codes are those of [Run].
package cli
