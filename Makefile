.PHONY: help run test lint cover release clean

help: ## list what can be made
	@awk -F ': ## ' '/^[a-z]+: ## /{printf "make %-7s %s\n", $$1, $$2}' Makefile

run: ## watch the demo: a worker crashes, and no job is lost
	@go run ./cmd/jq demo

test: ## run every test under the race detector, and sum up what was tried
	@scripts/test

lint: ## check formatting, modules, vet and golangci-lint
	@scripts/lint

cover: ## test with coverage of the whole module, left in coverage.out
	@go test -coverpkg=./... -coverprofile=coverage.out ./... && go tool cover -func=coverage.out | tail -n 1

release: ## build the program for each system into dist, with the version stamped
	@scripts/release

clean: ## remove what the other targets have left
	@rm -rf .cache dist coverage.out
