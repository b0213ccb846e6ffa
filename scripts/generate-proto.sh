#!/bin/sh
# Generates Go from every .proto file of this repository, next to the file.
# Needs protoc (Debian: protobuf-compiler); the Go plugins are pinned in
# tools/go.mod.
set -eu
cd "$(dirname "$0")/.."

if ! command -v protoc >/dev/null 2>&1; then
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
		apt-get install -y protobuf-compiler >/dev/null 2>&1 ||
			{ apt-get update && apt-get install -y protobuf-compiler; } >/dev/null
	else
		echo "generate-proto: protoc is missing; install it (Debian: apt-get install protobuf-compiler)" >&2
		exit 1
	fi
fi

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
(cd tools && go build -o "$bin/" \
	google.golang.org/protobuf/cmd/protoc-gen-go \
	google.golang.org/grpc/cmd/protoc-gen-go-grpc)

git ls-files --cached --others --exclude-standard -- '*.proto' | while read -r file; do
	PATH="$bin:$PATH" protoc -I . \
		--go_out=. --go_opt=paths=source_relative \
		--go-grpc_out=. --go-grpc_opt=paths=source_relative \
		"$file"
done
