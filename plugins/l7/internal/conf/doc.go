// Package conf is the configuration of a proxy that runs by itself: l7.yaml,
// over it the variables FAIRLEAD_L7_*, over them flags. It opens nothing but the
// file it is told of; every error names the place, the value and the remedy.
package conf
