// Package config turns the four places where a setting may be written into one
// checked [Config].
//
//	Defaults() → YAML file → FAIRLEAD_* variables → command-line flags
//
// A later layer wins. A written value counts, 0, false and the empty text
// included: only an absent key keeps the value of the layer below. For each key
// [Load] records where its value came from ([Origins]), so that an error and
// `fairlead config show --origin` can name the file and line, the variable or
// the flag.
//
// The file is strict: an unknown key, a key written twice, a value of the wrong
// type, an alias or a second document is an error that names file, line and
// column. Errors are gathered, so one run reports all of them.
//
// The struct tags of [Config] are the only list of keys. From them come the
// names of variables and flags ([Keys], [RegisterFlags]), the suggestions after
// a misspelt name, and the reference tables in README.md and docs/config.md
// (`go generate ./core/config`).
//
// The package does no input or output of its own: the file is read by
// [Options.ReadFile], the environment and the host name are arguments.
package config

//go:generate go run ./internal/gentable ../..
