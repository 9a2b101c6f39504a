package pgtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/lib/pq"
)

// bouncerConfig makes PgBouncer pool by transaction, with few servers behind many clients, so that clients share sessions. It
// retries a server that has refused after a second, as a setup for failover does.
const bouncerConfig = `[databases]
* = host=%s port=%d user=%s%s

[pgbouncer]
listen_addr =
listen_port = 6432
unix_socket_dir = %s
auth_type = any
admin_users = postgres
pool_mode = transaction
default_pool_size = 8
max_client_conn = 1000
server_login_retry = 1
ignore_startup_parameters = %s
logfile = %s
pidfile = %s
`

// Bouncer starts PgBouncer in front of the server and returns the DSN that leads through it. It ends with the test. drops names
// startup parameters that PgBouncer drops.
func Bouncer(t T, dsn string, drops ...string) string {
	t.Helper()
	return NewPooler(t, dsn, drops...).DSN
}

// A Pooler is a running PgBouncer.
//
// To replace the server behind it, an operator calls Pause, PointAt, Resume: callers wait meanwhile, and keep their
// connections. If the server is dead, PointAt alone is enough.
type Pooler struct {
	DSN string // leads through PgBouncer

	folder string
	drops  []string
	ended  chan struct{} // closed when it will not be restarted

	mu      sync.Mutex // guards the fields below
	process *os.Process
	over    bool
	anew    int
}

// NewPooler starts PgBouncer as [Bouncer] does.
func NewPooler(t T, dsn string, drops ...string) *Pooler {
	t.Helper()
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
	p := &Pooler{folder: folder, drops: append(drops, "extra_float_digits")}
	config, err := p.configure(dsn)
	if err != nil {
		t.Fatal(err)
	}
	p.DSN = fmt.Sprintf("host=%s port=6432 user=%s dbname=%s sslmode=disable", folder, config.User, config.Database)
	if err := p.start(program); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stop)
	if err := answers(filepath.Join(folder, ".s.PGSQL.6432")); err != nil {
		said, _ := os.ReadFile(filepath.Join(folder, "log"))
		t.Fatal(fmt.Errorf("PgBouncer does not answer: %w\n%s", err, said))
	}
	return p
}

// mostRestarts is how many restarts can be normal.
const mostRestarts = 100

// start runs PgBouncer and restarts it when it ends, as a service manager does: version 1.18 exits if a client that has sent a
// cancel request leaves at the wrong moment.
func (p *Pooler) start(program string) error {
	begin := func() (*exec.Cmd, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		cmd := exec.Command(program, "--quiet", p.file())
		cmd.Dir = p.folder
		asOther(cmd)
		if p.over || p.anew > mostRestarts {
			return nil, nil
		}
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		p.process = cmd.Process
		return cmd, nil
	}
	cmd, err := begin()
	if err != nil {
		return err
	}
	p.ended = make(chan struct{})
	go func() {
		defer close(p.ended)
		for cmd != nil && err == nil {
			_ = cmd.Wait()
			if cmd, err = begin(); cmd != nil {
				p.mu.Lock()
				p.anew++
				p.mu.Unlock()
			}
		}
	}()
	return nil
}

func (p *Pooler) stop() {
	p.mu.Lock()
	p.over = true
	_ = p.process.Kill() // it may have ended
	p.mu.Unlock()
	<-p.ended
}

// Restarts returns how often PgBouncer has exited and was restarted.
func (p *Pooler) Restarts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.anew
}

func (p *Pooler) file() string { return filepath.Join(p.folder, "ini") }

// configure writes the configuration that leads to the server.
func (p *Pooler) configure(dsn string) (pq.Config, error) {
	config, err := pq.NewConfig(dsn)
	if err != nil {
		return config, err
	}
	password := ""
	if config.Password != "" {
		password = " password=" + config.Password
	}
	text := fmt.Sprintf(bouncerConfig, config.Host, config.Port, config.User, password,
		p.folder, strings.Join(p.drops, ", "), filepath.Join(p.folder, "log"), filepath.Join(p.folder, "pid"))
	if err := os.WriteFile(p.file(), []byte(text), 0o644); err != nil {
		return config, err
	}
	return config, handOver(p.file()) // a strict umask prevents others from reading it
}

// Pause returns when no transaction is running and the connections to the server are closed. Callers wait until Resume.
func (p *Pooler) Pause(ctx context.Context) error { return p.order(ctx, "PAUSE") }

// Resume lets callers continue after Pause.
func (p *Pooler) Resume(ctx context.Context) error { return p.order(ctx, "RESUME") }

// PointAt directs new transactions to another server, which has a database of the same name. A connection to the old server
// ends after its present transaction. PgBouncer may be about to restart: it is told again until it answers.
func (p *Pooler) PointAt(ctx context.Context, dsn string) error {
	if _, err := p.configure(dsn); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, replicationBound)
	defer cancel()
	return repeat(ctx, 20*time.Millisecond, func() (bool, error) { return true, p.order(ctx, "RELOAD") })
}

// order runs a command on PgBouncer's console, which everybody may use.
func (p *Pooler) order(ctx context.Context, what string) error {
	db, err := sql.Open("postgres", fmt.Sprintf("host=%s port=6432 user=postgres dbname=pgbouncer sslmode=disable", p.folder))
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, what)
	if err != nil {
		err = fmt.Errorf("telling PgBouncer to %s: %w", what, err)
	}
	return errors.Join(err, db.Close())
}

// bouncer returns the path of the program, and installs it if necessary.
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

// answers waits until the socket accepts connections.
func answers(socket string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return repeat(ctx, 10*time.Millisecond, func() (bool, error) {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			err = conn.Close()
		}
		return true, err
	})
}
