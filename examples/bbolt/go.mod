module github.com/seed-ed332417/jq/examples/bbolt

go 1.26.0

require (
	github.com/benbjohnson/clock v1.3.5
	github.com/seed-ed332417/jq v0.0.0
	github.com/stretchr/testify v1.12.1
	go.etcd.io/bbolt v1.5.0
)

require (
	github.com/anishathalye/porcupine v1.3.1 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/robfig/cron/v3 v3.0.1 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.49.0 // indirect
	pgregory.net/rapid v1.3.0 // indirect
)

replace github.com/seed-ed332417/jq => ../..
