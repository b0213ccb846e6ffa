#!/bin/bash
# Installs the Debian packages that building and testing need, as far as they are
# missing, when it may; otherwise names them and goes on: whatever needs one then
# skips itself and says so. Changes nothing, and takes no time, when all is there.
#
#   scripts/setup.sh            what make dev and make test need
#   scripts/setup.sh generate   what make generate needs as well
set -euo pipefail

# need WHAT PACKAGE WHY: WHAT is a command, or a file if it begins with a slash.
missing=()
need() {
	if [[ $1 == /* ]]; then
		[[ -e $1 ]] && return
	else
		PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null && return
	fi
	missing+=("$2")
	echo "setup: $2 is missing: $3"
}

if ! command -v go >/dev/null; then
	echo "setup: no go command: install Go $(sed -n 's/^go //p' go.mod) or newer from https://go.dev/dl and put it into PATH" >&2
	exit 1
fi

need /etc/ssl/certs/ca-certificates.crt ca-certificates "go downloads modules over https"
need ip iproute2 "test/netns and test/e2e make network namespaces with it"
need nft nftables "test/netns cuts links with it"
need gcc gcc "the race detector needs cgo"
need /usr/include/stdlib.h libc6-dev "the race detector needs cgo"
if [[ ${1:-} == generate ]]; then
	need protoc protobuf-compiler "make generate compiles the .proto files"
	need /usr/include/google/protobuf/timestamp.proto libprotobuf-dev "the .proto files import it"
fi

((${#missing[@]})) || exit 0

if ((EUID != 0)); then
	echo "setup: not root, so nothing was installed; as root: apt-get install ${missing[*]}"
elif ! command -v apt-get >/dev/null; then
	echo "setup: no apt-get here, so nothing was installed; the packages are named as in Debian: ${missing[*]}"
else
	export DEBIAN_FRONTEND=noninteractive
	echo "setup: installing ${missing[*]}"
	log=$(mktemp)
	trap 'rm -f "$log"' EXIT
	if ! { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 </dev/null; then
		cat "$log" >&2
		echo "setup: apt-get could not install ${missing[*]}; going on without" >&2
	fi
fi
