.PHONY: help run demo test test-all lint cover bench bench-alone bench-check bench-docs compare mutants kills chaos soak screenshots release clean

help: ## list the targets
	@awk -F ': ## ' '/^[a-z-]+: ## /{printf "make %-11s %s\n", $$1, $$2}' Makefile

run: ## serve a store in .cache/jq.db, with a worker that runs a sample job; Ctrl-C stops both. FLAGS='--addr 127.0.0.1:8080'
	@mkdir -p .cache && go build -o .cache/jobq ./cmd/jobq && .cache/jobq dev --store sqlite:.cache/jq.db $(FLAGS)

demo: ## watch a worker crash, its job recovered, and its late answer refused
	@go run ./cmd/jobq demo

test: ## run the tests under the race detector and print their figures: ten minutes on two cores
	@scripts/test

test-all: ## run the tests that take longer or need more: killed processes, a pooler, the pages in a browser, a release, the module of the peers
	@scripts/test-all

lint: ## check formatting, modules, vet and golangci-lint
	@scripts/lint

cover: ## measure test coverage of the whole module, into coverage.out
	@go test -coverpkg=./... -coverprofile=coverage.out ./... && go tool cover -func=coverage.out | tail -n 1

bench: ## measure jq beside its peers, about two hours: tables, and .cache/bench.svg. FLAGS='--peers jq,river' for less
	@mkdir -p .cache && go -C bench run . --json ../.cache/bench.json --plot ../.cache/bench.svg $(FLAGS)

bench-alone: ## measure the goals that concern jq alone, two hours. FLAGS='--goals P9,P10' for less
	@go -C bench run . --alone $(FLAGS)

bench-check: ## compare Go's benchmarks with those of another revision: make bench-check BASE=main
	@scripts/bench-check "$(BASE)"

bench-docs: ## write the figures of make bench into docs/performance.md
	@go -C bench run . --from ../.cache/bench.json --json ../docs/performance.json --plot ../docs/performance.svg --document ../docs/performance.md

compare: ## see what jq, River and asynq do when a worker dies or comes back late: eight minutes, into docs/why.md
	@go -C bench run . --compare --document ../docs/why.md

chaos: ## repeat the tests of real faults with new seeds until 1,000 kills a store and ten failovers; continues where it stopped. FLAGS='-share 0.1 -for 20m' for less
	@. scripts/patroni && need_patroni && go run ./internal/chaos/cmd/chaos $(FLAGS)

soak: ## run each store for an hour, with kills and a held snapshot: samples, plots and verdicts in .cache/soak. FLAGS='-length 2m -stores sqlite' for less
	@go run ./internal/chaos/cmd/soak $(FLAGS)

screenshots: ## take the pictures of the dashboard in docs/screenshots, from workers on a day of work
	@. scripts/need && . scripts/need-browser && need_browser && need_axe && JQ_BROWSER=required go -C internal/browser test -count 1 -run '^TestScreenshots$$' -screenshots ../../docs/screenshots .

mutants: ## plant faults in the code and list those that the tests miss, 40 minutes; continues where it stopped. FLAGS='-n 3 -packages internal/wire' for less
	@mkdir -p .cache && go run ./internal/mutants -json .cache/mutants.json $(FLAGS)

kills: ## print which cases of the suite fail which broken stores, eight minutes. KILLS=all for those of other groups too, an hour
	@go test ./internal/conformance -run '^TestKills$$' -kills $(or $(KILLS),group) -timeout 90m -count 1 -v

release: ## build the files of a release into dist: archives, packages, SBOMs, checksums. VERSION=v0.2.0; default: that of the commit
	@scripts/release

clean: ## remove the files of the other targets
	@rm -rf .cache dist coverage.out
