//go:build unix

package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Flags are those that a store needs.
var Flags = []string{"--max-txn-ops=50000", "--max-request-bytes=33554432"}

// Options configures Start.
type Options struct {
	Members int      // how many, three if it is zero
	NoSync  bool     // commits do not wait for the disk
	TLS     bool     // members take clients only by TLS, and with a certificate
	Flags   []string // for each member; nil means Flags
	Restore string   // the file of a snapshot from which all members begin
}

// A Cluster is some members. One goroutine uses it.
type Cluster struct {
	options Options
	program string
	folder  string
	members []*member
	files   *Files           // nil without TLS
	config  clientv3.Config  // of clients, without endpoints
	client  *clientv3.Client // for questions about members
}

// A member is a process, if it is alive.
type member struct {
	name         string
	client, peer string // URLs
	later        bool   // it has come to a cluster that was there
	process      *exec.Cmd
	ended        chan struct{} // closed when the process has ended
}

// startPatience is how long a cluster may take to answer after its members were started.
const startPatience = time.Minute

// Start starts a cluster in the folder, and waits until it answers.
func Start(ctx context.Context, folder string, o Options) (*Cluster, error) {
	path, err := program(ctx, server)
	if err != nil {
		return nil, err
	}
	if o.Members == 0 {
		o.Members = 3
	}
	if o.Flags == nil {
		o.Flags = Flags
	}
	c := &Cluster{options: o, program: path, folder: folder, config: clientv3.Config{Logger: zap.NewNop(), DialTimeout: time.Second}}
	if o.TLS {
		if c.files, err = certificates(folder); err != nil {
			return nil, err
		}
		if c.config.TLS, err = c.files.config(); err != nil {
			return nil, err
		}
	}
	for i := range o.Members {
		m := &member{name: "m" + strconv.Itoa(i)}
		for _, url := range []*string{&m.client, &m.peer} {
			if *url, err = free(ctx); err != nil {
				return nil, err
			}
		}
		if o.TLS {
			m.client = strings.Replace(m.client, "http://", "https://", 1)
		}
		c.members = append(c.members, m)
	}
	c.client, err = c.connect(c.Endpoints()...)
	if err != nil {
		return nil, err
	}
	if o.Restore != "" {
		err = c.restore(ctx)
	}
	for i := range c.members {
		if err == nil {
			err = c.launch(i)
		}
	}
	if err == nil {
		err = c.Ready(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, c.endOfLogs(), c.Stop())
	}
	return c, nil
}

// connect returns a client of some members.
func (c *Cluster) connect(endpoints ...string) (*clientv3.Client, error) {
	config := c.config
	config.Endpoints = endpoints
	return clientv3.New(config)
}

// Ports are below those that systems give to clients, so that they stay free while a member is dead. Each process begins at another one and hands out none twice,
// so that tests that start clusters at once do not meet on a port.
const firstPort, ports = 20_000, 12_000

var (
	begin  = rand.Int64N(ports)
	handed atomic.Int64
)

// free returns a URL with a port that nobody uses now.
func free(ctx context.Context) (string, error) {
	const tries = 100
	var err error
	for range tries {
		address := net.JoinHostPort("127.0.0.1", strconv.FormatInt(firstPort+(begin+handed.Add(1))%ports, 10))
		var l net.Listener
		if l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", address); err == nil {
			return "http://" + address, l.Close()
		}
	}
	return "", fmt.Errorf("looking for a free port: %w", err)
}

// launch starts the process of a member.
func (c *Cluster) launch(i int) error {
	m := c.members[i]
	args := append([]string{
		"--listen-client-urls=" + m.client, "--advertise-client-urls=" + m.client, "--listen-peer-urls=" + m.peer, "--log-level=warn",
	}, c.identity(m)...)
	args = append(args, c.options.Flags...)
	if m.later {
		args = append(args, "--initial-cluster-state=existing")
	}
	if c.files != nil {
		args = append(args, c.files.flags()...)
	}
	if c.options.NoSync {
		args = append(args, "--unsafe-no-fsync")
	}
	log, err := os.OpenFile(c.log(i), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the process has its own
	m.process = exec.Command(c.program, args...)
	m.process.Stdout, m.process.Stderr, m.process.SysProcAttr = log, log, attributes()
	if err := m.process.Start(); err != nil {
		m.process = nil
		return err
	}
	ended, process := make(chan struct{}), m.process
	m.ended = ended
	go func() {
		_ = process.Wait()
		close(ended)
	}()
	return nil
}

// identity are the flags that say which member of which cluster one is.
func (c *Cluster) identity(m *member) []string {
	var all []string
	for _, one := range c.members {
		all = append(all, one.name+"="+one.peer)
	}
	return []string{
		"--name=" + m.name, "--data-dir=" + filepath.Join(c.folder, m.name), "--initial-advertise-peer-urls=" + m.peer,
		"--initial-cluster=" + strings.Join(all, ","), "--initial-cluster-token=" + filepath.Base(c.folder),
	}
}

// Snapshot writes the data of a member to a file.
func (c *Cluster) Snapshot(ctx context.Context, file string) error {
	from, err := c.client.Snapshot(ctx)
	if err != nil {
		return err
	}
	to, err := os.Create(file)
	if err != nil {
		return errors.Join(err, from.Close())
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, from.Close(), to.Close())
}

// restore makes the data of all members from a snapshot, as the guide says.
func (c *Cluster) restore(ctx context.Context) error {
	path, err := program(ctx, utl)
	if err != nil {
		return err
	}
	for _, m := range c.members {
		args := append([]string{"snapshot", "restore", c.options.Restore, "--bump-revision=1000000000", "--mark-compacted"}, c.identity(m)...)
		if said, err := exec.CommandContext(ctx, path, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("etcdutl %s: %w: %s", strings.Join(args, " "), err, said)
		}
	}
	return nil
}

func (c *Cluster) log(i int) string { return filepath.Join(c.folder, c.members[i].name+".log") }

// endOfLogs returns the ends of the members' logs.
func (c *Cluster) endOfLogs() error {
	const most = 2000
	var errs []error
	for i := range c.members {
		log, err := os.ReadFile(c.log(i))
		errs = append(errs, err, fmt.Errorf("the log of %s ends with:\n%s", c.members[i].name, log[max(0, len(log)-most):]))
	}
	return errors.Join(errs...)
}

// Len returns the number of members, dead or alive.
func (c *Cluster) Len() int { return len(c.members) }

// Endpoint returns the URL of a member.
func (c *Cluster) Endpoint(i int) string { return c.members[i].client }

// Endpoints returns the URLs of all members.
func (c *Cluster) Endpoints() []string {
	var list []string
	for _, m := range c.members {
		list = append(list, m.client)
	}
	return list
}

// Files returns the certificates of a cluster with TLS.
func (c *Cluster) Files() *Files { return c.files }

// Client returns a client that asks all members. Stop closes it.
func (c *Cluster) Client() *clientv3.Client { return c.client }

// Leader waits until one of the members that are asked leads the cluster, and returns which. Without members, it asks all.
func (c *Cluster) Leader(ctx context.Context, of ...int) (leader int, err error) {
	if of == nil {
		for i := range c.members {
			of = append(of, i)
		}
	}
	err = poll(ctx, func(ctx context.Context) error {
		var others []error
		for _, i := range of {
			err := c.leads(ctx, c.members[i])
			if err == nil {
				leader = i
				return nil
			}
			others = append(others, fmt.Errorf("member %s: %w", c.members[i].name, err))
		}
		return errors.Join(others...)
	})
	return leader, err
}

// leads returns an error if the member does not lead the cluster, or does not answer in time for others to be asked.
func (c *Cluster) leads(ctx context.Context, m *member) error {
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	s, err := c.client.Status(ctx, m.client)
	if err != nil {
		return err
	}
	if s.Leader != s.Header.MemberId {
		return fmt.Errorf("it follows %x in term %d: %v", s.Leader, s.RaftTerm, s.Errors)
	}
	return nil
}

// Ready waits until each member answers a read that needs most of the others.
func (c *Cluster) Ready(ctx context.Context) error {
	for _, m := range c.members {
		one, err := c.connect(m.client)
		if err != nil {
			return err
		}
		err = poll(ctx, func(ctx context.Context) error {
			_, err := one.Get(ctx, "ready")
			return err
		})
		if err := errors.Join(err, one.Close()); err != nil {
			return fmt.Errorf("member %s: %w", m.name, err)
		}
	}
	return nil
}

// poll asks until there is no error.
func poll(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		limited, cancel := context.WithTimeout(ctx, time.Second)
		err := ask(limited)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}

// Kill ends members at once, as a loss of their machines does, but for what their systems would have lost.
func (c *Cluster) Kill(of ...int) error {
	var errs []error
	for _, i := range of {
		errs = append(errs, c.signal(i, syscall.SIGKILL))
	}
	for _, i := range of {
		<-c.members[i].ended
		c.members[i].process = nil
	}
	return errors.Join(errs...)
}

// Revive starts members that were killed. It does not wait for them.
func (c *Cluster) Revive(of ...int) (err error) {
	for _, i := range of {
		err = errors.Join(err, c.launch(i))
	}
	return err
}

// Replace removes a member that was killed, with its data, and starts an empty one in its place. It does not wait for it.
func (c *Cluster) Replace(ctx context.Context, i int) error {
	m := c.members[i]
	err := poll(ctx, func(ctx context.Context) error { // while the others elect a leader, there is no answer
		list, err := c.client.MemberList(ctx)
		if err != nil {
			return err
		}
		for _, one := range list.Members {
			if one.Name == m.name {
				_, err = c.client.MemberRemove(ctx, one.ID)
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(c.folder, m.name)); err != nil {
		return err
	}
	if err := poll(ctx, func(ctx context.Context) error {
		if _, err := c.client.MemberAdd(ctx, []string{m.peer}); !errors.Is(err, rpctypes.ErrPeerURLExist) { // an answer may have been lost
			return err
		}
		return nil
	}); err != nil {
		return err
	}
	m.later = true
	return c.launch(i)
}

// Pause stops a member. Its connections stay open.
func (c *Cluster) Pause(i int) error { return c.signal(i, syscall.SIGSTOP) }

// Resume lets a member go on.
func (c *Cluster) Resume(i int) error { return c.signal(i, syscall.SIGCONT) }

func (c *Cluster) signal(i int, s os.Signal) error {
	m := c.members[i]
	if m.process == nil {
		return fmt.Errorf("member %s is dead", m.name)
	}
	return m.process.Process.Signal(s)
}

// Stop ends all members. It leaves the folder.
func (c *Cluster) Stop() error {
	var alive []int
	for i, m := range c.members {
		if m.process != nil {
			alive = append(alive, i)
		}
	}
	err := c.Kill(alive...)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil // it has ended by itself
	}
	return errors.Join(err, c.client.Close())
}
