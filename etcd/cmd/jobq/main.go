// Command jobq is the durable job queue on the command line, also for stores on etcd. Run it without arguments for its commands.
package main

import (
	"context"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/etcd"
	"github.com/seed-ed332417/jq/internal/cli"
	"github.com/seed-ed332417/jq/kv"
)

func main() {
	cli.Main(cli.Kind{
		Name: "etcd", Schemes: []string{"etcd", "etcds"}, Check: etcd.CheckURL,
		Form: "etcd[s]://[USER:PASSWORD@]HOST:PORT,HOST:PORT/PREFIX", Flags: "[?ca=FILE&cert=FILE&key=FILE]",
		Open: func(ctx context.Context, url string, o cli.Options) (jq.Store, error) {
			return etcd.Open(ctx, url, &kv.Options{MaxLease: o.MaxLease, NoMigrate: o.NoMigrate, Logger: o.Logger})
		},
		Backup:  "take a snapshot of the cluster (etcdctl snapshot save FILE)",
		Restore: "restore a snapshot of the cluster (etcdutl snapshot restore FILE --bump-revision 1000000000 --mark-compacted), then run fence before workers start",
	})
}
