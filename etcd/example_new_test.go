package etcd_test

import (
	"context"
	"crypto/tls"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seed-ed332417/jq/contract"
	"github.com/seed-ed332417/jq/etcd"
	"github.com/seed-ed332417/jq/kv"
)

// open opens a store in a cluster that asks for TLS and a password.
func open(ctx context.Context, password string) (contract.Store, error) {
	engine, err := etcd.New(ctx, clientv3.Config{
		Endpoints: []string{"https://a.example:2379", "https://b.example:2379", "https://c.example:2379"},
		TLS:       &tls.Config{MinVersion: tls.VersionTLS13},
		Username:  "jobs",
		Password:  password,
	}, "jobs")
	if err != nil {
		return nil, err
	}
	return kv.Open(ctx, engine, nil)
}

func ExampleNew() {
	_ = open // the program would be like the one above
}
