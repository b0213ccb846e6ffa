#!/bin/bash
# Regenerates everything that is generated: code below core/ and dataplane/ from
# .proto files, what go:generate lines name, and the table of configuration keys
# in the README. The plugins of protoc come from tools/go.mod.
set -euo pipefail

if ! command -v protoc >/dev/null; then
	echo "generate: no protoc: install the Debian package protobuf-compiler" >&2
	exit 1
fi

plugins=$(mktemp -d)
trap 'rm -rf "$plugins"' EXIT
for plugin in protoc-gen-go protoc-gen-go-grpc; do
	cat >"$plugins/$plugin" <<-EOF
		#!/bin/sh
		exec go tool -modfile=tools/go.mod $plugin
	EOF
	chmod +x "$plugins/$plugin"
done

mapfile -t protos < <(find core dataplane -name '*.proto' 2>/dev/null | sort)
if ((${#protos[@]})); then
	PATH=$plugins:$PATH protoc -I . \
		--go_out=. --go_opt=paths=source_relative \
		--go-grpc_out=. --go-grpc_opt=paths=source_relative \
		"${protos[@]}"
fi
go generate ./...
