# Targets for people and for CI. `make` alone lists them.
#
# make demo needs only Go. make test also needs a C compiler, for the race detector, and
# make conformance needs npm. The tools of make lint, make vuln and make conformance are
# installed into .tools, at the versions below.

GOFUMPT_VERSION     := v0.12.0
STATICCHECK_VERSION := v0.8.2
GOVULNCHECK_VERSION := v1.9.0
CONFORMANCE_VERSION := 0.1.16
NODE_VERSION        := 22.23.3

GO ?= go

# How long each fuzz target runs; make fuzz-short sets less.
FUZZTIME ?= 30s
# How long make soak runs. It needs a little more than 10,000 file descriptors.
SOAKTIME ?= 10m
# How many random scenarios each property test of make properties runs.
PROPERTYRUNS ?= 10000
# Give the tests time on a small machine.
TESTTIMEOUT ?= 15m
# Flags for make bench-compare, such as -rounds 3.
BENCH ?=
# How often make conformance runs the scenario about timing.
CONFORMANCE_RUNS ?= 10

TOOLS       := $(CURDIR)/.tools
GOFUMPT     := $(TOOLS)/gofumpt-$(GOFUMPT_VERSION)/gofumpt
STATICCHECK := $(TOOLS)/staticcheck-$(STATICCHECK_VERSION)/staticcheck
GOVULNCHECK := $(TOOLS)/govulncheck-$(GOVULNCHECK_VERSION)/govulncheck
CONFORMANCE := $(TOOLS)/conformance-$(CONFORMANCE_VERSION)-node-$(NODE_VERSION)

# Files that others wrote, such as those of npm packages, are not ours to format.
SOURCES = $(shell find . -name '*.go' -not -path '*/.*/*' -not -path '*/node_modules/*')

# The main module first, then the nested ones: every directory with a go.mod.
MODULES := $(sort $(patsubst %/go.mod,%,$(shell find . -name go.mod -not -path '*/testdata/*' -not -path '*/.*/*' -not -path '*/node_modules/*')))

# $(call in_modules,command) runs the command in each module, stops at the first
# failure, and says where it is if there is more than one module.
in_modules = @set -eu; for module in $(MODULES); do \
	if [ $(words $(MODULES)) -gt 1 ]; then echo "== $$module"; fi; \
	(cd "$$module" && $(1)); done

.PHONY: help demo build test properties lint fmt fuzz fuzz-short bench bench-compare soak vuln examples consume conformance ci clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## watch a stream outlive its server, 15 seconds
	@$(GO) run ./examples/tail

build: ## compile everything
	$(call in_modules,$(GO) build ./...)

test: ## run every test, shuffled, under the race detector
	$(call in_modules,$(GO) test -race -shuffle=on -timeout $(TESTTIMEOUT) ./...)

properties: ## run the property tests PROPERTYRUNS (10000) times each
	REPRISE_RUNS=$(PROPERTYRUNS) $(GO) test -shuffle=on -timeout $(TESTTIMEOUT) -run '^TestG[0-9]' ./eventsource

lint: $(GOFUMPT) $(STATICCHECK) ## check format, vet, staticcheck, go.mod
	@unformatted=$$($(GOFUMPT) -l $(SOURCES)) || exit 1; if [ -n "$$unformatted" ]; then \
		echo "not formatted (run make fmt):"; echo "$$unformatted"; exit 1; fi
	$(call in_modules,$(GO) vet ./...)
	$(call in_modules,$(STATICCHECK) ./...)
	$(call in_modules,$(GO) mod tidy -diff)

fmt: $(GOFUMPT) ## format every file
	$(GOFUMPT) -w $(SOURCES)

fuzz: ## run each fuzz target for FUZZTIME (30s)
	@set -eu; found=0; \
	packages=$$($(GO) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...); \
	for package in $$packages; do \
		targets=$$($(GO) test -list '^Fuzz' "$$package"); \
		for target in $$targets; do \
			case $$target in Fuzz*) ;; *) continue ;; esac; \
			echo "== $$package $$target"; found=1; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$package"; \
		done; \
	done; \
	if [ $$found = 0 ]; then echo "no fuzz target found"; exit 1; fi

fuzz-short: ## the same, a few seconds each
	@$(MAKE) --no-print-directory fuzz FUZZTIME=5s

bench: ## run the benchmarks of every module
	$(call in_modules,$(GO) test -run '^$$' -bench . -benchmem ./...)

soak: ## 5,000 streams through server restarts, SOAKTIME (10m) long
	$(GO) test -v -count 1 -run '^TestSoak$$' -timeout 0 ./internal/soak -soak $(SOAKTIME) -streams 5000

bench-compare: ## compare with other clients; takes minutes and a machine that does nothing else
	@cd bench && $(GO) run . $(BENCH)

vuln: $(GOVULNCHECK) ## look for known vulnerabilities; asks the Go vulnerability database
	$(call in_modules,$(GOVULNCHECK) ./...)

examples: ## build the examples, run the documented ones and the demo
	$(call in_modules,$(GO) build ./... && $(GO) test -run '^Example' ./...)
	@$(MAKE) --no-print-directory demo

consume: ## use this checkout as a new module would, with this Go and the oldest
	@$(GO) run ./internal/consume local oldest

conformance: $(CONFORMANCE)/node_modules ## run MCP's conformance suite with the transport of examples/mcp
	@./examples/mcp/conformance.sh $(CONFORMANCE) $(CONFORMANCE_RUNS)

ci: lint test properties fuzz-short examples consume ## everything that a change must pass

clean: ## remove installed tools
	rm -rf $(TOOLS)

# The version is part of the path, so a new one is installed when it changes.
$(GOFUMPT):
	GOBIN=$(@D) $(GO) install mvdan.cc/gofumpt@$(GOFUMPT_VERSION)

$(STATICCHECK):
	GOBIN=$(@D) $(GO) install honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK_VERSION)

$(GOVULNCHECK):
	GOBIN=$(@D) $(GO) install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION)

# The suite needs a newer Node than most systems have, so npm installs that too.
$(CONFORMANCE)/node_modules:
	npm install --no-audit --no-fund --prefix $(CONFORMANCE) \
		node@$(NODE_VERSION) @modelcontextprotocol/conformance@$(CONFORMANCE_VERSION) || \
		{ rm -rf $(CONFORMANCE); exit 1; } # half an installation would look like a whole one
