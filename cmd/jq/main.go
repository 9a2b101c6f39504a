// Command jq is jobq under its older name, which hides the JSON tool of that name: install cmd/jobq in its place.
package main

import "github.com/seed-ed332417/jq/internal/cli"

func main() { cli.Main() }
