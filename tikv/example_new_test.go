package tikv_test

import (
	"context"
	"log"
	"time"

	tikvconfig "github.com/tikv/client-go/v2/config"
	"github.com/tikv/client-go/v2/oracle"
	"github.com/tikv/client-go/v2/txnkv"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/kv"
	"github.com/seed-ed332417/jq/tikv"
)

// open opens a store in a cluster that asks for TLS. The configuration is that of all clients of the process.
func open(ctx context.Context) (contract.Store, error) {
	tikvconfig.UpdateGlobal(func(c *tikvconfig.Config) {
		c.Security = tikvconfig.NewSecurity("ca.pem", "client.pem", "client-key.pem", nil)
	})
	client, err := txnkv.NewClient([]string{"a.example:2379", "b.example:2379", "c.example:2379"})
	if err != nil {
		return nil, err
	}
	engine, err := tikv.New(client, "jobs")
	if err != nil {
		return nil, err
	}
	return kv.Open(ctx, engine, nil)
}

// collect removes earlier values of all keys of the cluster, each ten minutes. One program of a cluster without TiDB does that.
func collect(ctx context.Context, client *txnkv.Client) {
	const kept = 10 * time.Minute
	each := time.NewTicker(kept)
	defer each.Stop()
	for {
		select {
		case <-each.C:
			if _, err := client.GC(ctx, oracle.GoTimeToTS(time.Now().Add(-kept))); err != nil {
				log.Print(err)
			}
		case <-ctx.Done():
			return
		}
	}
}

func ExampleNew() {
	_, _ = open, collect // the programs would be like the ones above
}
