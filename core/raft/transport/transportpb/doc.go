// Package transportpb is what transport.proto is compiled to.
package transportpb
