// Package plane is the data plane itself: it joins what should be programmed with
// what package table keeps in the kernel.
package plane
