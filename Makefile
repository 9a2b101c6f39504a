.PHONY: help run demo test test-all lint cover bench bench-alone bench-check bench-docs mutants chaos soak release clean

help: ## list what can be made
	@awk -F ': ## ' '/^[a-z-]+: ## /{printf "make %-11s %s\n", $$1, $$2}' Makefile

run: ## serve a store in .cache/jq.db, with a worker that runs a sample job; Ctrl-C ends both. FLAGS='--addr 127.0.0.1:8080'
	@mkdir -p .cache && go build -o .cache/jobq ./cmd/jobq && .cache/jobq dev --store sqlite:.cache/jq.db $(FLAGS)

demo: ## watch a worker crash, its job recovered, and its late answer refused
	@go run ./cmd/jobq demo

test: ## run the tests under the race detector, and sum up what was tried: at most ten minutes on two cores
	@scripts/test

test-all: ## run what takes longer or needs more: killed processes, a pooler, the module of the peers
	@scripts/test-all

lint: ## check formatting, modules, vet and golangci-lint
	@scripts/lint

cover: ## test with coverage of the whole module, left in coverage.out
	@go test -coverpkg=./... -coverprofile=coverage.out ./... && go tool cover -func=coverage.out | tail -n 1

bench: ## measure jq beside its peers, about an hour: a table, and .cache/bench.svg. FLAGS='--peers jq,river' for less
	@mkdir -p .cache && go -C bench run . --json ../.cache/bench.json --plot ../.cache/bench.svg $(FLAGS)

bench-alone: ## measure what the goals say of jq alone, an hour and a half. FLAGS='--goals P9,P10' for less
	@go -C bench run . --alone $(FLAGS)

bench-check: ## compare Go's benchmarks with those of another revision: make bench-check BASE=main
	@scripts/bench-check "$(BASE)"

bench-docs: ## put what make bench has measured into docs/performance.md
	@go -C bench run . --from ../.cache/bench.json --json ../docs/performance.json --plot ../docs/performance.svg --document ../docs/performance.md

chaos: ## repeat the tests of real faults with new seeds until 1,000 kills a store and ten failovers, goes on where it was. FLAGS='-share 0.1 -for 20m' for less
	@go run ./internal/chaos/cmd/chaos $(FLAGS)

soak: ## let each store work for an hour, with kills and a held snapshot: samples, plots and verdicts in .cache/soak. FLAGS='-length 2m -stores sqlite' for less
	@go run ./internal/chaos/cmd/soak $(FLAGS)

mutants: ## plant faults in the code and look which the tests miss, 40 minutes, goes on where it was. FLAGS='-n 3 -packages internal/wire' for less
	@mkdir -p .cache && go run ./internal/mutants -json .cache/mutants.json $(FLAGS)

release: ## build the program for each system into dist, with the version stamped
	@scripts/release

clean: ## remove what the other targets have left
	@rm -rf .cache dist coverage.out
