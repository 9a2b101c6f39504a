package pgtest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
)

// Options configures a cluster. The zero value is a fast server that trusts everybody and loses commits when it is killed.
type Options struct {
	Durable  bool     // a commit is synced to the disk before it is answered
	Password string   // required by the server, with scram-sha-256
	Network  bool     // listens on 127.0.0.1 too
	Disk     int      // the size in bytes of a disk of its own: see [ErrNoDisk]
	Settings []string // further server settings, as name=value: the last one counts
}

// The ports lie below those that systems give to clients. Otherwise a client that dials a stopped server could get that
// server's port.
const firstPort, lastPort = 20_000, 30_000

// prepare prepares what initdb needs.
func (o Options) prepare(c *Cluster) error {
	c.port = 5432
	if o.Network {
		port, err := FreePort()
		if err != nil {
			return err
		}
		c.port = port
	}
	if o.Password != "" {
		if err := os.WriteFile(c.passwordFile(), []byte(o.Password+"\n"), 0o600); err != nil {
			return err
		}
		if err := handOver(c.passwordFile()); err != nil {
			return err
		}
	}
	if o.Disk == 0 {
		return nil
	}
	return mount(c.disk(), o.Disk)
}

func (c *Cluster) passwordFile() string { return filepath.Join(c.folder, "password") }

// Ports are handed out one after the other: a server takes a while until it listens, and another one must not get its port meanwhile.
var (
	beginPort   = rand.Int64N(lastPort - firstPort)
	handedPorts atomic.Int64
)

// FreePort returns a port on which nobody listens.
func FreePort() (port int, err error) {
	for range 100 {
		port = firstPort + int((beginPort+handedPorts.Add(1))%(lastPort-firstPort))
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no free port for a server: %w", err)
}

// initdb returns the options' arguments for initdb.
func (o Options) initdb(c *Cluster) []string {
	args := []string{"--auth", "trust"}
	if o.Password != "" {
		args = []string{"--auth", "scram-sha-256", "--pwfile", c.passwordFile()}
	}
	if o.Disk != 0 {
		args = append(args, "--wal-segsize", "1") // megabyte: the smallest, so that a small disk has room for several
	}
	return args
}

// settings returns the server's settings.
func (o Options) settings(c *Cluster) []string {
	all := []string{
		"unix_socket_directories=" + c.folder, "port=" + strconv.Itoa(c.port), "listen_addresses=",
		"max_connections=200", "max_wal_size=2GB", "shared_buffers=128MB",
		"timezone=Asia/Kathmandu", // results must be in UTC whatever the server's zone is
	}
	if o.Network {
		all = append(all, "listen_addresses=127.0.0.1")
	}
	if !o.Durable {
		all = append(all, "fsync=off", "synchronous_commit=off", "full_page_writes=off")
	}
	return append(all, o.Settings...)
}

// dsns returns the DSNs of the server.
func (o Options) dsns(c *Cluster) (socket, network string) {
	rest := fmt.Sprintf(" port=%d user=postgres dbname=postgres sslmode=disable", c.port)
	if o.Password != "" {
		rest += " password=" + quoted(o.Password)
	}
	socket = "host=" + c.folder + rest
	if o.Network {
		network = "host=127.0.0.1" + rest
	}
	return socket, network
}

// quoted quotes the value for a key=value DSN.
func quoted(value string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value) + "'"
}
