package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// A Cluster is a Postgres server with its own folder.
type Cluster struct {
	DSN string // through a socket in the folder
	TCP string // over the network, if the options allow it

	options Options
	folder  string
	bin     string
	port    int
	lock    *flock.Flock // held while the owner lives
	primary *Cluster     // of a standby
	crashed bool         // by Crash: the next start of the server frees what its processes held
}

const prefix = "jq-pgtest-"

// memory is the folder whose files Linux keeps in memory.
const memory = "/dev/shm"

// parent returns the folder for the clusters' folders: the path of a socket must be short.
func parent() string {
	if _, err := os.Stat("/tmp"); err == nil {
		return "/tmp"
	}
	return os.TempDir()
}

// parent returns the folder for the cluster's folder. What need not outlive a crash of the machine lies in its memory, if there is
// plenty: a busy disk can make a process wait for so long that its clients give up.
func (o Options) parent() string {
	const plenty = 4 << 30
	if !o.Durable && left(memory) >= plenty {
		return memory
	}
	return parent()
}

// Start removes what killed owners have left, and starts a cluster.
func Start(ctx context.Context, o Options) (*Cluster, error) { return begin(ctx, o, (*Cluster).initdb) }

// begin starts a cluster whose data fill has made.
func begin(ctx context.Context, o Options, fill func(*Cluster, context.Context) error) (*Cluster, error) {
	c, err := place(ctx, o)
	if err != nil {
		return nil, err
	}
	if err = fill(c, ctx); err == nil {
		err = c.Revive(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting a Postgres for tests in %s: %w", c.folder, err), c.Stop())
	}
	return c, nil
}

// place makes the folder of a cluster without data, and chooses its port. Stop removes it.
func place(ctx context.Context, o Options) (*Cluster, error) {
	bin, err := binaries(ctx)
	if err != nil {
		return nil, err
	}
	clearStale(bin)
	folder, err := os.MkdirTemp(o.parent(), prefix)
	if err != nil {
		return nil, err
	}
	c := &Cluster{options: o, folder: folder, bin: bin, lock: flock.New(filepath.Join(folder, "owner"))}
	if err := c.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("making the folder %s of a Postgres for tests: %w", folder, err), c.Stop())
	}
	return c, nil
}

func (c *Cluster) prepare() error {
	if err := c.lock.Lock(); err != nil {
		return err
	}
	if err := handOver(c.folder); err != nil {
		return err
	}
	if err := c.options.prepare(c); err != nil {
		return err
	}
	c.DSN, c.TCP = c.options.dsns(c)
	return nil
}

// initdb creates the data of a new server.
func (c *Cluster) initdb(ctx context.Context) error {
	args := []string{"--pgdata", c.data(), "--username", "postgres", "--encoding", "UTF8", "--no-locale", "--no-sync", "--no-instructions"}
	return c.run(ctx, "initdb", append(args, c.options.initdb(c)...)...)
}

// Kill ends the server's processes at once, without a checkpoint.
func (c *Cluster) Kill(ctx context.Context) error {
	return c.run(ctx, "pg_ctl", "stop", "--wait", "--silent", "--mode", "immediate", "--pgdata", c.data())
}

// KillSession kills one of the server's processes, as a system that is out of memory does. The server then ends all others and
// restarts by itself.
func (c *Cluster) KillSession(ctx context.Context, pid int) error {
	return c.run(ctx, "pg_ctl", "kill", "KILL", strconv.Itoa(pid))
}

// Revive starts the server on its existing data and waits until it answers.
func (c *Cluster) Revive(ctx context.Context) error {
	err := c.run(ctx, "pg_ctl", "start", "--wait", "--silent", "--pgdata", c.data(), "--log", filepath.Join(c.folder, "log"),
		"--options", "-c "+strings.Join(c.options.settings(c), " -c "))
	if err != nil {
		return errors.Join(err, c.endOfLog())
	}
	c.crashed = false
	return nil
}

// endOfLog returns the end of the server's log.
func (c *Cluster) endOfLog() error {
	const most = 2000
	log, err := os.ReadFile(filepath.Join(c.folder, "log"))
	if err != nil {
		return err
	}
	return fmt.Errorf("the server's log ends with:\n%s", log[max(0, len(log)-most):])
}

// Running reports whether the server is running or starting.
func (c *Cluster) Running() bool {
	_, err := os.Stat(filepath.Join(c.data(), "postmaster.pid"))
	return err == nil && !c.crashed
}

// Stop stops the server and removes the folder.
func (c *Cluster) Stop() error {
	var err error
	if c.crashed {
		err = c.Revive(context.Background()) // frees its shared memory
	}
	if c.Running() {
		err = errors.Join(err, c.Kill(context.Background()))
	}
	return errors.Join(err, unmount(c.disk()), c.lock.Close(), os.RemoveAll(c.folder))
}

// run runs one of the server's programs, all of which refuse to run as root.
func (c *Cluster) run(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, name), args...)
	cmd.Dir = c.folder
	asOther(cmd)
	out, err := os.CreateTemp("", "jq-pgtest-out-") // the server would hold a pipe open
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
	onDisk, _ := filepath.Glob(filepath.Join(parent(), prefix+"*"))
	inMemory, _ := filepath.Glob(filepath.Join(memory, prefix+"*"))
	for _, folder := range append(onDisk, inMemory...) {
		owner := filepath.Join(folder, "owner")
		if info, err := os.Stat(owner); err != nil || time.Since(info.ModTime()) < time.Minute {
			continue // not a cluster, or its owner may be about to lock the file
		}
		lock := flock.New(owner)
		if free, err := lock.TryLock(); err != nil || !free {
			continue
		}
		_ = (&Cluster{folder: folder, bin: bin, lock: lock}).Stop()
	}
}

// binaries returns the folder of the server's programs: from the PATH, from Debian's folders by version, or newly installed.
func binaries(ctx context.Context) (string, error) {
	return found(ctx, "postgresql", "install the Postgres server (initdb, pg_ctl), or set "+Variable+" to a DSN", find)
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

// found returns the result of find, if necessary after installing the package. otherwise is advice for the error.
func found(ctx context.Context, name, otherwise string, find func() (string, bool)) (string, error) {
	if path, ok := find(); ok {
		return path, nil
	}
	if err := install(ctx, name, otherwise, find); err != nil {
		return "", err
	}
	if path, ok := find(); ok {
		return path, nil
	}
	return "", fmt.Errorf("%s has none of the programs that tests need: %s", name, otherwise)
}

// install installs a package if nobody's permission is needed: on Debian, as root. Processes that need it at the same time take
// turns, because apt does not wait. It prevents the distribution from creating its own cluster.
func install(ctx context.Context, name, otherwise string, find func() (string, bool)) error {
	if _, err := os.Stat("/etc/debian_version"); err != nil || os.Getuid() != 0 {
		return fmt.Errorf("%s is missing for tests: %s", name, otherwise)
	}
	turn := flock.New(filepath.Join(parent(), "jq-pgtest-install.lock"))
	if _, err := turn.TryLockContext(ctx, 100*time.Millisecond); err != nil {
		return fmt.Errorf("waiting to install %s for tests: %w", name, err)
	}
	defer func() { _ = turn.Close() }()
	if _, ok := find(); ok {
		return nil
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
	stale := aptGet(ctx, "update", "-qq") // this may fail because of a source that is not needed
	if err := aptGet(ctx, "install", "-qq", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300", name); err != nil {
		return errors.Join(err, stale)
	}
	return nil
}

func aptGet(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return nil
}
