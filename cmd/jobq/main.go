// Command jobq is the durable job queue on the command line. Run it without arguments for its commands.
package main

import "github.com/seed-ed332417/jq/internal/cli"

func main() { cli.Main() }
