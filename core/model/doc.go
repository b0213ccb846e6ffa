// Package model holds the typed ids and values that every other package
// speaks in. It is pure: values and their order, nothing that acts.
package model
