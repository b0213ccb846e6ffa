// Package fairleadv1 is the generated Go form of the fairlead.v1 API, which
// agent.proto defines. Use core/api/client to call it from Go.
package fairleadv1

//go:generate ../../../scripts/generate-proto.sh
