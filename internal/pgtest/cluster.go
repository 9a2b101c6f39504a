package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gofrs/flock"
)

// A Cluster is a Postgres server in a folder of its own. It syncs nothing to the disk: it does not outlive its tests.
type Cluster struct {
	DSN string

	folder string
	bin    string
	lock   *flock.Flock // held while the owner lives
}

const prefix = "jq-pgtest-"

// parent is where the folders stand: the path of a socket must be short.
func parent() string {
	if _, err := os.Stat("/tmp"); err == nil {
		return "/tmp"
	}
	return os.TempDir()
}

// Start clears away what killed owners have left, and starts a cluster.
func Start(ctx context.Context) (*Cluster, error) {
	bin, err := binaries(ctx)
	if err != nil {
		return nil, err
	}
	clearStale(bin)
	folder, err := os.MkdirTemp(parent(), prefix)
	if err != nil {
		return nil, err
	}
	c := &Cluster{folder: folder, bin: bin, lock: flock.New(filepath.Join(folder, "owner"))}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("starting a Postgres for tests in %s: %w", folder, err), c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	if err := c.lock.Lock(); err != nil {
		return err
	}
	if err := handOver(c.folder); err != nil {
		return err
	}
	err := c.run(ctx, "initdb", "--pgdata", c.data(), "--username", "postgres", "--auth", "trust",
		"--encoding", "UTF8", "--no-locale", "--no-sync", "--no-instructions")
	if err != nil {
		return err
	}
	settings := []string{
		"listen_addresses=", "unix_socket_directories=" + c.folder, "max_connections=200",
		"fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_wal_size=2GB", "shared_buffers=128MB",
	}
	options := "-c " + strings.Join(settings, " -c ")
	err = c.run(ctx, "pg_ctl", "start", "--wait", "--silent", "--pgdata", c.data(), "--log", filepath.Join(c.folder, "log"), "--options", options)
	if err != nil {
		return err
	}
	c.DSN = "host=" + c.folder + " user=postgres dbname=postgres sslmode=disable"
	return nil
}

func (c *Cluster) data() string { return filepath.Join(c.folder, "data") }

// Stop stops the server and removes the folder.
func (c *Cluster) Stop() error {
	ctx := context.Background()
	var err error
	if _, running := os.Stat(filepath.Join(c.data(), "postmaster.pid")); running == nil {
		err = c.run(ctx, "pg_ctl", "stop", "--wait", "--silent", "--mode", "immediate", "--pgdata", c.data())
	}
	return errors.Join(err, c.lock.Close(), os.RemoveAll(c.folder))
}

// run runs one of the server's programs, which all refuse to be run by root.
func (c *Cluster) run(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, name), args...)
	cmd.Dir = c.folder
	asOther(cmd)
	out, err := os.CreateTemp("", "jq-pgtest-out-") // a pipe would be held open by the server
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(out.Name()) }()
	defer func() { _ = out.Close() }()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		said, _ := os.ReadFile(out.Name())
		return fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(said)))
	}
	return nil
}

// clearStale stops and removes clusters whose owner is gone: nobody holds their lock.
func clearStale(bin string) {
	folders, _ := filepath.Glob(filepath.Join(parent(), prefix+"*"))
	for _, folder := range folders {
		owner := filepath.Join(folder, "owner")
		if _, err := os.Stat(owner); err != nil {
			continue // it is being made, or is none
		}
		lock := flock.New(owner)
		if free, err := lock.TryLock(); err != nil || !free {
			continue
		}
		_ = (&Cluster{folder: folder, bin: bin, lock: lock}).Stop()
	}
}

// binaries is the folder of the server's programs: on the PATH, in Debian's folders by version, or installed just now.
func binaries(ctx context.Context) (string, error) {
	if bin, ok := find(); ok {
		return bin, nil
	}
	if err := install(ctx, "postgresql"); err != nil {
		return "", err
	}
	if bin, ok := find(); ok {
		return bin, nil
	}
	return "", errors.New("no Postgres for tests: install the server (initdb, pg_ctl), or set " + Variable + " to a DSN")
}

func find() (string, bool) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path), true
		}
	}
	folders, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(folders) == 0 {
		return "", false
	}
	newest := slices.MaxFunc(folders, func(a, b string) int { return len(a) - len(b) + strings.Compare(a, b) })
	return filepath.Dir(newest), true
}

// install installs a package where that needs nobody's leave: on Debian, as root. The distribution's own cluster is not
// wanted.
func install(ctx context.Context, name string) error {
	if _, err := os.Stat("/etc/debian_version"); err != nil || os.Getuid() != 0 {
		return fmt.Errorf("%s is missing for tests: install it, or set %s to a DSN", name, Variable)
	}
	const conf = "/etc/postgresql-common/createcluster.conf"
	if _, err := os.Stat(conf); err != nil {
		if err := os.MkdirAll(filepath.Dir(conf), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(conf, []byte("create_main_cluster = false\n"), 0o644); err != nil {
			return err
		}
	}
	fmt.Fprintln(os.Stderr, "installing "+name+", which the tests need")
	for _, args := range [][]string{{"update", "-qq"}, {"install", "-qq", "-y", "--no-install-recommends", name}} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w: %s", args[0], err, out)
		}
	}
	return nil
}
