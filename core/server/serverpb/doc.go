// Package serverpb is what server.proto is compiled to.
package serverpb
