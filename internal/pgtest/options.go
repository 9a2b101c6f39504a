package pgtest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Options are what a cluster can be started with. The zero value is a fast one, which loses what it was told when it is
// killed and trusts everybody.
type Options struct {
	Durable  bool     // a commit is synced to the disk before it is answered
	Password string   // what the server asks for, by scram-sha-256
	Network  bool     // it listens on 127.0.0.1 too
	Disk     int      // the bytes of a disk of its own, with nothing else on it: see [ErrNoDisk]
	Settings []string // more of the server's settings, as name=value: the last one counts
}

// The ports to choose from lie below those from which systems take the ports of callers: somebody who calls a server that is
// away can not be given its port.
const firstPort, lastPort = 20_000, 30_000

// prepare makes what initdb needs.
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

// FreePort is one on which nobody listens.
func FreePort() (port int, err error) {
	for range 100 {
		port = firstPort + rand.IntN(lastPort-firstPort)
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no free port for a server: %w", err)
}

// initdb is how its arguments differ.
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

// settings are the server's.
func (o Options) settings(c *Cluster) []string {
	all := []string{
		"unix_socket_directories=" + c.folder, "port=" + strconv.Itoa(c.port), "listen_addresses=",
		"max_connections=200", "max_wal_size=2GB", "shared_buffers=128MB",
		"timezone=Asia/Kathmandu", // as a server of anybody's may have: what comes out is in UTC all the same
	}
	if o.Network {
		all = append(all, "listen_addresses=127.0.0.1")
	}
	if !o.Durable {
		all = append(all, "fsync=off", "synchronous_commit=off", "full_page_writes=off")
	}
	return append(all, o.Settings...)
}

// dsns are the ways to the server.
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

// quoted is the value as a DSN of key=value takes it.
func quoted(value string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value) + "'"
}
