// Package fairleadv1 is the generated Go form of the fairlead.v1 API, which
// agent.proto defines (make generate). Use core/api/client to call it from Go.
package fairleadv1
