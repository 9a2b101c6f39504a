// Command release builds a release of jq: see package release. scripts/release calls it in the root of the repository.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/seed-ed332417/jq/internal/release"
)

func main() {
	out := flag.String("out", "dist", "the folder for the files")
	version := flag.String("version", "", "the version, such as v0.2.0; default: that of the commit")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := build(ctx, *out, *version); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func build(ctx context.Context, out, wanted string) error {
	version, err := release.Version(ctx, ".", wanted)
	if err != nil {
		return err
	}
	if err := release.Build(ctx, release.Options{Root: ".", Out: out, Version: version, Systems: release.Systems}); err != nil {
		return err
	}
	entries, err := os.ReadDir(out)
	for _, entry := range entries {
		fmt.Fprintln(os.Stdout, out+"/"+entry.Name())
	}
	return err
}
