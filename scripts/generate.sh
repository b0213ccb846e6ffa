#!/bin/bash
# Regenerates everything that is generated: code below core/, dataplane/ and
# contrib/ from .proto files, what go:generate lines name, and the table of
# configuration keys in the README, and the objects of bpf/. The plugins of protoc
# and bpf2go come from tools/go.mod. Objects are the same again with Debian 12's
# clang only.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v protoc >/dev/null; then
	echo "generate: no protoc: install the Debian package protobuf-compiler" >&2
	exit 1
fi
if ! command -v clang >/dev/null || ! command -v llvm-strip >/dev/null || [[ ! -e /usr/include/bpf/bpf_helpers.h ]]; then
	echo "generate: the objects of bpf/ need clang, llvm-strip and libbpf's headers: install the Debian packages clang, llvm and libbpf-dev" >&2
	exit 1
fi

plugins=$(mktemp -d)
trap 'rm -rf "$plugins"' EXIT
(cd tools && go build -o "$plugins/" \
	google.golang.org/protobuf/cmd/protoc-gen-go \
	google.golang.org/grpc/cmd/protoc-gen-go-grpc)

mapfile -t protos < <(find core dataplane -name '*.proto' 2>/dev/null | sort)
if ((${#protos[@]})); then
	PATH=$plugins:$PATH protoc -I . \
		--go_out=. --go_opt=paths=source_relative \
		--go-grpc_out=. --go-grpc_opt=paths=source_relative \
		"${protos[@]}"
fi
protoc -I dataplane/dataplanepb --python_out=contrib/plugins/python-example dataplane.proto
go generate ./...
