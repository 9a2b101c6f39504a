// Package etcdtest starts clusters of etcd for tests: processes on free ports of 127.0.0.1, with data in a folder of the test. It builds the server from
// the Go module internal/etcdserver, once for each version, and kills, stops and revives members.
package etcdtest
