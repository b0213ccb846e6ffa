#!/bin/bash
# Compiles every .proto file of this repository to Go beside it. `go generate`
# calls it. protoc comes from Debian (scripts/setup.sh generate installs it), its
# plugins from tools/go.mod.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v protoc >/dev/null; then
	echo "generate-proto: protoc is missing: make generate installs it when root, or install the Debian package protobuf-compiler" >&2
	exit 1
fi

plugins=$(mktemp -d)
trap 'rm -rf "$plugins"' EXIT
(cd tools && go build -o "$plugins/" \
	google.golang.org/protobuf/cmd/protoc-gen-go \
	google.golang.org/grpc/cmd/protoc-gen-go-grpc)

mapfile -t protos < <(find . -name '*.proto' -not -path '*/testdata/*' | sort | sed 's|^\./||')
PATH=$plugins:$PATH protoc -I . \
	--go_out=. --go_opt=paths=source_relative \
	--go-grpc_out=. --go-grpc_opt=paths=source_relative \
	"${protos[@]}"
