// Command jobq is the durable job queue on the command line, also for stores on TiKV. Run it without arguments for its commands.
package main

import (
	"context"

	"github.com/pingcap/log"
	"go.uber.org/zap"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/cli"
	"github.com/seed-ed332417/jq/kv"
	"github.com/seed-ed332417/jq/tikv"
)

func main() {
	log.ReplaceGlobals(zap.NewNop(), &log.ZapProperties{}) // the client writes to standard output
	cli.Main(cli.Kind{
		Name: "TiKV", Schemes: []string{"tikv"}, Check: tikv.CheckURL,
		Form: "tikv://HOST:PORT,HOST:PORT/PREFIX",
		Open: func(ctx context.Context, url string, o cli.Options) (jq.Store, error) {
			return tikv.Open(ctx, url, &kv.Options{MaxLease: o.MaxLease, NoMigrate: o.NoMigrate, Logger: o.Logger})
		},
		Backup:  "take a backup of the cluster (br backup txn)",
		Restore: "restore a backup of the cluster (br restore txn), then run fence before workers start",
	})
}
