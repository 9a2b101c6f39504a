package pgtest

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lib/pq"
)

// Replication.
//
// [Cluster.Standby] starts a second server that streams from the first one. Commits do not wait for it until you call
// [Cluster.Synchronous] or [Cluster.AnyOf]. [Cluster.Detach] cuts it off from its primary, and [Cluster.Attach] lets it stream
// again; if the standby is promoted in between, it lacks what the primary has committed meanwhile. A failover is Crash of the
// primary, then Promote of the standby; of several, that with the most by [Cluster.Received], and then the others [Cluster.Follow]
// it. Revive starts the old primary again, as a second server that knows nothing of the first.
//
// Options without Durable turn synchronous_commit off, and then no commit waits for a standby. Tests of synchronous replication
// must start their primary with synchronous_commit=on in Settings, or with Durable.

// replicationBound limits how long a server may take to carry out a command of this file.
const replicationBound = time.Minute

// Each server keeps enough WAL for the time that a test detaches a standby.
const keptWAL, kept = "wal_keep_size", "1GB"

// Standby starts a server that streams from this one, and returns once it streams. The caller must stop it, before or after its
// primary.
func (c *Cluster) Standby(ctx context.Context) (*Cluster, error) {
	if err := c.configure(ctx, keptWAL, kept); err != nil {
		return nil, err
	}
	s, err := begin(ctx, c.options, func(s *Cluster, ctx context.Context) error { return s.copyOf(ctx, c) })
	if err != nil {
		return nil, err
	}
	if err := s.CaughtUp(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// copyOf copies the primary's data for a standby.
func (c *Cluster) copyOf(ctx context.Context, primary *Cluster) error {
	if err := c.run(ctx, "pg_basebackup", "--dbname", primary.DSN, "--pgdata", c.data(), "--checkpoint", "fast", "--no-sync",
		"--write-recovery-conf"); err != nil {
		return err
	}
	c.primary = primary
	// The copy has the primary's ALTER SYSTEM settings, including the standbys that its commits wait for.
	text := "primary_conninfo = " + confQuoted(c.conninfo()) + "\nwal_retrieve_retry_interval = 100ms\n" + keptWAL + " = " + kept + "\n"
	return os.WriteFile(filepath.Join(c.data(), "postgresql.auto.conf"), []byte(text), 0o600)
}

// conninfo returns how a standby reaches its primary.
func (c *Cluster) conninfo() string {
	return c.primary.DSN + " application_name=" + c.standbyName()
}

// standbyName returns the name by which the primary knows the standby.
func (c *Cluster) standbyName() string { return filepath.Base(c.folder) }

// confQuoted quotes the value for the server's configuration files.
func confQuoted(value string) string { return "'" + strings.ReplaceAll(value, "'", "''") + "'" }

// Synchronous sets whether commits on this server wait until a standby has them. The setting holds for every commit after it
// returns. A commit that is already waiting continues to wait until a standby connects or replication is no longer synchronous.
func (c *Cluster) Synchronous(ctx context.Context, on bool) error {
	if on {
		return c.await(ctx, "*")
	}
	return c.await(ctx, "")
}

// AnyOf makes commits on this server wait until any one of the standbys has them. For a lone standby, use Synchronous.
func (c *Cluster) AnyOf(ctx context.Context, standbys ...*Cluster) error {
	var names []string
	for _, s := range standbys {
		names = append(names, pq.QuoteIdentifier(s.standbyName()))
	}
	return c.await(ctx, "ANY 1 ("+strings.Join(names, ", ")+")")
}

// await sets which standbys commits wait for.
func (c *Cluster) await(ctx context.Context, names string) error {
	if err := c.configure(ctx, "synchronous_standby_names", names); err != nil {
		return err
	}
	// The checkpointer writes the setting into shared memory when it reads the configuration. One checkpoint may begin just
	// before that, but not two.
	return c.exec(ctx, `CHECKPOINT`, `CHECKPOINT`)
}

// Detach cuts a standby off from its primary. When it returns, the primary sees no standby, and nothing more arrives.
func (c *Cluster) Detach(ctx context.Context) error {
	if err := c.configure(ctx, "primary_conninfo", ""); err != nil {
		return err
	}
	err := c.until(ctx, "the standby receives nothing more", `SELECT count(*) = 0 FROM pg_stat_wal_receiver`)
	if err != nil || !c.primary.Running() {
		return err
	}
	return c.primary.until(ctx, "the primary has noticed that the standby is gone",
		`SELECT count(*) = 0 FROM pg_stat_replication WHERE application_name = `+pq.QuoteLiteral(c.standbyName()))
}

// Attach undoes Detach, and returns when the standby has everything that the primary had written.
func (c *Cluster) Attach(ctx context.Context) error {
	if err := c.configure(ctx, "primary_conninfo", c.conninfo()); err != nil {
		return err
	}
	return c.CaughtUp(ctx)
}

// CaughtUp returns when a standby streams and has replayed everything that its primary has written so far. If commits wait for
// standbys, the primary then counts this one.
func (c *Cluster) CaughtUp(ctx context.Context) error {
	var lsn string
	if err := c.primary.get(ctx, &lsn, `SELECT pg_current_wal_insert_lsn()::text`); err != nil {
		return err
	}
	// A standby receives only flushed WAL. A commit flushes everything before it, but only if it has written something itself.
	if err := c.primary.exec(ctx, `
		BEGIN; SET LOCAL synchronous_commit = local; SELECT pg_logical_emit_message(true, 'pgtest', ''); COMMIT`); err != nil {
		return err
	}
	return c.primary.until(ctx, "the standby has caught up", fmt.Sprintf(`
		SELECT count(*) = 1
		FROM pg_stat_replication
		WHERE application_name = %s AND state = 'streaming' AND replay_lsn >= %s::pg_lsn
			AND (sync_state IN ('sync', 'quorum') OR current_setting('synchronous_standby_names') = '')`,
		pq.QuoteLiteral(c.standbyName()), pq.QuoteLiteral(lsn)))
}

// Follow makes a standby stream from another primary, and returns when the standby has all that the primary had written. The standby must
// not have received more than the primary had when that was promoted.
func (c *Cluster) Follow(ctx context.Context, primary *Cluster) error {
	c.primary = primary
	return c.Attach(ctx)
}

// Received returns how far in the log a standby has come, in bytes: of several standbys, the one that has received the most has
// all that any of the others has.
func (c *Cluster) Received(ctx context.Context) (position int64, err error) {
	// A standby that was started anew has received nothing since, and has replayed what it had.
	err = c.get(ctx, &position, `
		SELECT (greatest(coalesce(pg_last_wal_receive_lsn(), '0/0'), coalesce(pg_last_wal_replay_lsn(), '0/0')) - '0/0')::bigint`)
	return position, err
}

// Promote makes a standby a primary, and returns when it accepts writes. Its commits wait for no standby.
func (c *Cluster) Promote(ctx context.Context) error {
	return c.run(ctx, "pg_ctl", "promote", "--wait", "--silent", "--pgdata", c.data())
}

// WaitingCommits returns when at least n commits of clients wait for a standby at the same time, with the process ids of their
// sessions. Commits of the server's own processes, such as autovacuum, do not count.
func (c *Cluster) WaitingCommits(ctx context.Context, n int) (pids []int, err error) {
	var found pq.Int64Array
	err = c.poll(ctx, fmt.Sprintf("%d commits wait for a standby", n), func(db *sql.DB) (bool, error) {
		err := db.QueryRowContext(ctx, `
			SELECT coalesce(array_agg(pid), '{}') FROM pg_stat_activity
			WHERE wait_event = 'SyncRep' AND backend_type = 'client backend'`).Scan(&found)
		return len(found) >= n, err
	})
	for _, pid := range found {
		pids = append(pids, int(pid))
	}
	return pids, err
}

// Crash kills all of the server's processes by SIGKILL, as a loss of power would. Unlike with [Cluster.Kill], no session says
// goodbye to its client.
func (c *Cluster) Crash(ctx context.Context) error {
	first, err := c.Process()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, replicationBound)
	defer cancel()
	others, err := c.others(ctx, first)
	if err != nil {
		return err
	}
	c.crashed = true
	all := append([]int{first}, others...) // the first one would restart the others
	for _, pid := range all {
		process, err := os.FindProcess(pid)
		if err == nil {
			err = process.Kill()
		}
		if err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("killing process %d of the server: %w", pid, err)
		}
	}
	return gone(ctx, all)
}

// gone waits until the processes have ended and were reaped: the server refuses to start while its old processes exist.
func gone(ctx context.Context, pids []int) error {
	for _, pid := range pids {
		err := repeat(ctx, 5*time.Millisecond, func() (bool, error) {
			process, err := os.FindProcess(pid)
			return err != nil || process.Signal(syscall.Signal(0)) != nil, nil
		})
		if err != nil {
			return fmt.Errorf("process %d of the server was killed, and is still there: %w", pid, err)
		}
	}
	return nil
}

// Process returns the id of the server's first process.
func (c *Cluster) Process() (int, error) {
	text, err := os.ReadFile(filepath.Join(c.data(), "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strconv.Atoi(line)
}

// configure changes a setting of a running server, and returns when every new session has it.
func (c *Cluster) configure(ctx context.Context, name, value string) error {
	if err := c.exec(ctx, `ALTER SYSTEM SET `+name+` = `+pq.QuoteLiteral(value), `SELECT pg_reload_conf()`); err != nil {
		return err
	}
	return c.until(ctx, name+" is "+value, `SELECT current_setting('`+name+`') = `+pq.QuoteLiteral(value))
}

// until waits until the query returns true.
func (c *Cluster) until(ctx context.Context, what, query string) error {
	return c.poll(ctx, what, func(db *sql.DB) (yes bool, err error) {
		err = db.QueryRowContext(ctx, query).Scan(&yes)
		return yes, err
	})
}

// poll asks repeatedly, each time in a new session with the present configuration.
func (c *Cluster) poll(ctx context.Context, what string, ask func(db *sql.DB) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, replicationBound)
	defer cancel()
	err := repeat(ctx, 20*time.Millisecond, func() (yes bool, err error) {
		err = c.session(func(db *sql.DB) (err error) {
			yes, err = ask(db)
			return err
		})
		return yes, err
	})
	if err != nil {
		return fmt.Errorf("timed out waiting on the server in %s: %s: %w", c.folder, what, err)
	}
	return nil
}

// repeat asks again and again until the answer is yes, or the context ends. Then it returns the last error, or that of the context.
func repeat(ctx context.Context, every time.Duration, ask func() (yes bool, err error)) error {
	again := time.NewTicker(every)
	defer again.Stop()
	for {
		yes, err := ask()
		if yes && err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return cmp.Or(err, ctx.Err())
		}
	}
}

func (c *Cluster) get(ctx context.Context, to any, query string) error {
	return c.session(func(db *sql.DB) error { return db.QueryRowContext(ctx, query).Scan(to) })
}

// exec runs each statement by itself.
func (c *Cluster) exec(ctx context.Context, statements ...string) error {
	return c.session(func(db *sql.DB) error {
		for _, one := range statements {
			if _, err := db.ExecContext(ctx, one); err != nil {
				return fmt.Errorf("%s: %w", one, err)
			}
		}
		return nil
	})
}

func (c *Cluster) session(do func(db *sql.DB) error) error {
	db, err := sql.Open("postgres", c.DSN)
	if err != nil {
		return err
	}
	return errors.Join(do(db), db.Close())
}
