package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/seed-ed332417/jq/bench/internal/compare"
	"github.com/seed-ed332417/jq/bench/internal/peers"
	"github.com/seed-ed332417/jq/bench/internal/producer"
)

func main() {
	producer.Main(peers.All())
	compare.Main()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
