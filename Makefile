# Fairlead. `make help` lists the targets; CONTRIBUTING.md says how they are used.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
# What programs print is compared, and a locale that is not installed is warned of.
export LC_ALL := C

VERSION  := $(shell scripts/version.sh)
LDFLAGS  := -X main.version=$(VERSION)
COMMANDS := $(notdir $(wildcard cmd/*))
CONTRIB  := $(patsubst %/go.mod,%,$(wildcard contrib/plugins/*/go.mod))
WINDOW   := 60s
TOOL     := go tool -modfile=tools/go.mod

.PHONY: help
help: ## List the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r t d; do printf '  %-16s %s\n' "$$t" "$$d"; done

.PHONY: setup
setup: ## Install the Debian packages that dev and test need (names them when not root)
	@scripts/setup.sh

.PHONY: build
build: ## Build the agent and every plugin into bin/, static
	@mkdir -p bin
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ $(COMMANDS:%=./cmd/%)

.PHONY: contrib
contrib: ## Build the data planes of contrib/ that are in Go, each by its own steps, into bin/contrib/
	@mkdir -p bin/contrib
	$(foreach m,$(CONTRIB),CGO_ENABLED=0 go build -C $(m) -trimpath -o $(CURDIR)/bin/contrib/fairlead-dataplane-$(notdir $(m)) . &&) true

.PHONY: dev
dev: setup build ## Start a cluster of three on loopback, with services and proxies
	bin/fairlead dev

.PHONY: demo
demo: setup build ## Kill a node under load, count what its clients notice
	bin/fairlead demo

.PHONY: test
test: setup build ## Run all tests with a tenth of the counts, each fuzz target for 10 s
	FAIRLEAD_BIN=$(CURDIR)/bin/fairlead go run ./test/run

.PHONY: test-long
test-long: setup build ## Run all tests with the full counts, each fuzz target for 60 s
	FAIRLEAD_TEST_SCALE=1 FAIRLEAD_BIN=$(CURDIR)/bin/fairlead go run ./test/run -long

.PHONY: generate
generate: ## Regenerate what .proto files, struct tags of the configuration and bpf/ define
	@scripts/setup.sh generate
	scripts/generate.sh

.PHONY: lint
lint: ## Check format, vet, static analysis, the walls and the licences
	@out=$$($(TOOL) gofumpt -l $$(scripts/sources.sh)); if [[ -n $$out ]]; then echo "not formatted (gofumpt -w):"; echo "$$out"; exit 1; fi
	go vet ./...
	$(TOOL) staticcheck ./...
	$(TOOL) go-errorlint -errorf -test=false ./...
	$(TOOL) sloglint -no-global=all -key-naming-case=snake ./...
	go run ./test/licences
	$(foreach m,$(CONTRIB),(cd $(m) && go vet ./... && go tool -modfile=$(CURDIR)/tools/go.mod staticcheck ./... && go tool -modfile=$(CURDIR)/tools/go.mod go-errorlint -errorf -test=false ./...) && go run ./test/licences -C $(m) . &&) true
	go test ./test/arch

.PHONY: bench
bench: setup build ## Measure the hot paths, then whole agents beside a peer (WINDOW=60s each)
	go test -run '^$$' -bench . -benchmem ./core/...
	FAIRLEAD_BENCH_WINDOW=$(WINDOW) FAIRLEAD_BIN=$(CURDIR)/bin/fairlead go test -C test/bench -count=1 -timeout 60m -v .

.PHONY: bench-dataplane
bench-dataplane: setup ## Measure a provider under host and loop: times, bytes, memory, CPU
	FAIRLEAD_BENCH_WINDOW=20s go test -C test/bench -count=1 -timeout 30m -v ./dataplane

.PHONY: bench-l7
bench-l7: ## Measure the HTTP proxy beside nginx, HAProxy and ReverseProxy
	@scripts/setup.sh bench
	FAIRLEAD_BENCH_WINDOW=$${FAIRLEAD_BENCH_WINDOW:-3s} go test -C test/bench -count=1 -timeout 30m -v ./l7

.PHONY: bench-l4
bench-l4: setup ## Measure service addresses: connects, traffic, programming (as root; FAIRLEAD_BENCH_PART=nat or ebpf: that part only)
	FAIRLEAD_BENCH_ROUNDS=$${FAIRLEAD_BENCH_ROUNDS:-21} go test -C test/bench -count=1 -timeout 30m -v ./l4

.PHONY: bench-kv
bench-kv: build ## Measure the store beside etcd, Debian's and the newest (FAIRLEAD_BENCH_PART=writes,failover: those parts only)
	@scripts/setup.sh bench
	FAIRLEAD_BENCH_ROUNDS=$${FAIRLEAD_BENCH_ROUNDS:-5} FAIRLEAD_BIN=$(CURDIR)/bin/fairlead go test -C test/bench -count=1 -timeout 60m -v ./kv

.PHONY: cover
cover: setup ## Measure coverage; fails below 80 % in any package but commands
	@mkdir -p coverage
	go test -count=1 -coverprofile=coverage/profile ./...
	go run ./test/cover coverage/profile
