# seine: everything that is done with this tree. `make help` lists it.

GO      ?= go
export CGO_ENABLED = 0
TOOLS    = $(notdir $(patsubst %/,%,$(dir $(wildcard tools/*/*.bpf.c))))
FUZZTIME ?= 30s
# The commit, its date, and "dirty" if tracked files were changed. Go does not write it into builds from a worktree.
REVISION = $(shell git log -1 --abbrev=12 --format='%h %cs' 2>/dev/null)$(shell git diff-index --quiet HEAD 2>/dev/null || echo ' dirty')

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

.PHONY: build
build: ## build ./seine
	$(GO) build -trimpath -ldflags "-s -w -X 'seine/internal/cli.Revision=$(REVISION)'" -o seine ./cmd/seine

.PHONY: run
run: build ## build it and show live output: demo traffic, so that there is some
	./seine demo tcplife

.PHONY: generate
generate: ## BPF objects (clang 14) and tools/all.go from the folders under tools/; then docs
	$(GO) run ./internal/gen
	$(GO) run ./internal/gen/docs

.PHONY: btf
btf: ## the kept parts of the matrix kernels' BTF, after a tool has come to read new structs
	$(GO) run ./test/vm fetch
	$(GO) run ./internal/gen/btf

.PHONY: new
new: ## make the folder of a new tool: make new tool=x
	$(GO) run ./internal/gen/new $(tool)

.PHONY: check
check: ## what must hold at every commit: format, vet, staticcheck, generated files, rings 1 and 2
	./test/check
	$(GO) test -p 1 -ldflags='-s=false -w=false' $$($(GO) list ./... | grep -v /test/live)

.PHONY: test
test: ## install what tests need, then all four rings; ends with N passed, N failed; only=native,6.12 for some steps
	$(GO) run ./test/run -only "$(only)"

.PHONY: quick
quick: ## the inner loop, three minutes: format, vet, packages without traffic, five tools by their best way
	$(GO) run ./test/run -quick

.PHONY: test-full
test-full: ## as test, with every way on every kernel (an hour or more for each kernel: only=6.12,native); writes test/proof/test-full-KERNEL.json, and docs/COVERAGE.md from all of them
	FULL=1 $(GO) run ./test/run -only "$(only)"

.PHONY: coverage
coverage: ## which tools of others work on the same kernels; docs/COVERAGE.md keeps what it says of ours
	THEIRS=1 $(GO) run ./test/run

.PHONY: live
live: ## ring 3 on the running kernel
	$(GO) test -count=1 -skip 'TestPeers|TestTheirs' ./test/live

.PHONY: pictures
pictures: build ## docs/pictures: imports.svg from go list, top.svg from a run of seine demo top in tmux
	$(GO) run ./internal/gen/imports
	$(GO) run ./internal/gen/screen -session -rest 5s -wait 'db :5432' -keys 'Down,Enter,Enter,Escape,Escape,4,5,Enter,c' -o docs/pictures/top.svg ./seine demo top

.PHONY: docs
docs: build ## rerun the commands of docs/guide, docs/SIXTY-SECONDS.md and README.md, and show what changed (root; three minutes); go run ./internal/gen/guide -update writes it
	$(GO) run ./internal/gen/guide

.PHONY: update
update: ## rewrite the golden files of ring 2, and the table of the language's elements
	UPDATE=1 $(GO) test -run '^(TestGolden|TestHelpColumns|TestListing|TestTable|TestTableHistogramOutputs)$$' ./internal/bt ./internal/sink ./tools

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME
	./test/fuzz $(FUZZTIME)

.PHONY: soak
soak: ## 100,000 sockets, sessions without a pause for ten minutes, the agent beside 10,000 services for 30; writes test/proof/soak.json
	$(GO) run ./test/proof/write soak $(GO) test -count=1 -v -timeout 30m ./test/soak -skip TestAgent -sockets 100000 -for 10m
	$(GO) test -count=1 -v -timeout 60m ./test/soak -run TestAgent -sockets 100000 -services 10000 -for 30m
	$(GO) test -count=1 -v ./test/cli -run TestAgentSheds -recovers

.PHONY: fleet
fleet: build ## 20 agents beside Prometheus, VictoriaMetrics and the OpenTelemetry Collector, with a fault and failures (root; 15 minutes, more the first time: it builds the three); writes docs/FLEET.md and test/proof/fleet.json
	$(GO) run ./test/proof/write fleet $(GO) run ./test/fleet -o docs/FLEET.md

.PHONY: kube
kube: ## kustomize builds deploy/kubernetes, and Kubernetes' own types take the result (both from their modules; minutes the first time)
	cd test/kube && $(GO) run . ../../deploy/kubernetes

.PHONY: record-proof
record-proof: build ## recorders killed at 100 moments, files damaged at 1,000 places, and how long the first row of the last hour takes in 1 GB (some minutes, 1 GB of disk); writes test/proof/record.json
	SEINE_KILLS=100 SEINE_PLACES=1000 $(GO) run ./test/proof/write record sh -c '$(GO) test -count=1 -v -timeout 10m -run "TestKilled|TestTruncated|TestFlipped" ./internal/journal && $(GO) run ./test/bench -only gigabyte'

.PHONY: faults
faults: ## all faults, pairs and healthy loads that seine why is proved by; writes test/proof/faults.json and docs/WHY.md
	$(GO) run ./test/proof/write faults $(GO) test -count=1 -v -timeout 40m ./test/why -args -all
	$(GO) run ./internal/gen/docs

.PHONY: mutants
mutants: ## put 100 defects into the BPF C, and list those that no test notices (an hour; goes on where it was stopped); writes test/proof/mutants.json
	$(GO) run ./test/mutants

.PHONY: mutants-go
mutants-go: ## as mutants, 30 defects in the Go of the engine; writes no proof
	$(GO) run ./test/mutants -go -n 30

.PHONY: bench
bench: build ## speed and size, natively and in a VM, beside the tools of others; writes them into docs/BENCHMARKS.md
	./test/bench/run -o docs/BENCHMARKS.md

.PHONY: release
release: ## dist/: tarballs, .deb and .rpm for amd64 and arm64, SBOMs, checksums
	$(GO) -C release run .

.PHONY: release-check
release-check: ## make all that twice, compare it byte by byte, install the .deb here and in a Debian guest; with FULL=1 compile it twice
	$(GO) -C release vet .
	$(GO) -C release test -count=1 -timeout 30m .
