package pgtest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/lib/pq"
)

// bouncerConfig pools by transaction: no session outlives one. Few servers stand behind many clients, so that they mix.
const bouncerConfig = `[databases]
* = host=%s port=%d user=%s%s

[pgbouncer]
listen_addr =
listen_port = 6432
unix_socket_dir = %s
auth_type = any
pool_mode = transaction
default_pool_size = 8
max_client_conn = 1000
ignore_startup_parameters = %s
logfile = %s
pidfile = %s
`

// Bouncer starts PgBouncer in front of the server, and returns the DSN that leads through it. It ends with the test. Of what a
// session starts with, it also drops what is named.
func Bouncer(t T, dsn string, drops ...string) string {
	t.Helper()
	config, err := pq.NewConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	program, err := bouncer()
	if err != nil {
		t.Fatal(err)
	}
	folder, err := os.MkdirTemp(parent(), "jq-bouncer-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	if err := handOver(folder); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, "ini")
	password := ""
	if config.Password != "" {
		password = " password=" + config.Password
	}
	text := fmt.Sprintf(bouncerConfig, config.Host, config.Port, config.User, password,
		folder, strings.Join(append(drops, "extra_float_digits"), ", "), filepath.Join(folder, "log"), filepath.Join(folder, "pid"))
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := handOver(file); err != nil { // a strict umask lets nobody else read it
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--quiet", file)
	cmd.Dir = folder
	asOther(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if err := answers(filepath.Join(folder, ".s.PGSQL.6432")); err != nil {
		said, _ := os.ReadFile(filepath.Join(folder, "log"))
		t.Fatal(fmt.Errorf("PgBouncer does not answer: %w\n%s", err, said))
	}
	return fmt.Sprintf("host=%s port=6432 user=%s dbname=%s sslmode=disable", folder, config.User, config.Database)
}

// bouncer is the program, installed if need be.
func bouncer() (string, error) {
	return found(context.Background(), "pgbouncer", "install PgBouncer", func() (string, bool) {
		for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
			if path, err := exec.LookPath(name); err == nil {
				return path, true
			}
		}
		return "", false
	})
}

// answers waits until somebody accepts connections there.
func answers(socket string) error {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	var err error
	for range 1000 {
		var conn net.Conn
		if conn, err = net.Dial("unix", socket); err == nil {
			return conn.Close()
		}
		<-look.C
	}
	return err
}
