#!/bin/bash
# Lists the Go files that people write: neither generated ones nor test data.
set -euo pipefail

find . -name '*.go' -not -path '*/testdata/*' -print0 |
	xargs -0 grep -L '^// Code generated .* DO NOT EDIT\.$' || true
