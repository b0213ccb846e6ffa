#!/bin/bash
# Prints the version that make build links into the binaries: from the nearest
# tag, else the commit, else "dev" where git or its metadata is missing.
set -euo pipefail

if ! command -v git >/dev/null || ! git rev-parse --git-dir >/dev/null 2>&1; then
	echo dev
	exit
fi
git describe --tags --always --dirty 2>/dev/null || echo dev
