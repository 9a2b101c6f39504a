//go:build unix

package pgtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// PatroniVariable is the environment variable that names the folder with the programs patroni and etcd.
const PatroniVariable = "JQ_TEST_PATRONI"

// PatroniSettings are the settings that decide about a failover, as docs/guides/high-availability.md shows them. ttl is the least
// that Patroni allows, and so is loop_wait.
const PatroniSettings = `bootstrap:
  dcs:
    synchronous_mode: true
    ttl: 20
    loop_wait: 1
    retry_timeout: 8
    maximum_lag_on_failover: 1048576
    postgresql:
      use_pg_rewind: true
`

// otherSettings is the rest of a node's settings. The server trusts everybody on this machine, and forgets what it did if the
// machine dies: tests kill its processes only.
const otherSettings = `      parameters:
        max_connections: 200
  initdb: [encoding: UTF8, no-locale, no-sync]
  pg_hba:
  - local all all trust
  - host all all 127.0.0.1/32 trust
  - host replication all 127.0.0.1/32 trust
scope: jobs
name: %[1]q
etcd3: {host: "127.0.0.1:%[2]d"}
restapi: {listen: "127.0.0.1:%[3]d", connect_address: "127.0.0.1:%[3]d"}
postgresql:
  listen: "127.0.0.1:%[4]d"
  connect_address: "127.0.0.1:%[4]d"
  data_dir: %[5]q
  bin_dir: %[6]q
  pgpass: %[7]q
  authentication:
    superuser: {username: postgres}
    replication: {username: replicator}
    rewind: {username: postgres}
  parameters: {unix_socket_directories: %[8]q, fsync: "off", shared_buffers: 64MB, timezone: Asia/Kathmandu}
`

// patroniBound limits how long servers may take to find a primary and to follow it: a copy of the data and two elections.
const patroniBound = 3 * time.Minute

// A Patroni is servers that Patroni manages, on one member of etcd. It starts them, lets one accept writes, and promotes another
// one when that dies.
type Patroni struct {
	URL   string // of all nodes: whoever connects looks for the one that accepts writes
	Nodes []*Node

	home   *Cluster // a folder without a server, for the programs and for etcd
	client int      // the port of etcd
	etcd   *process
}

// A Node is a server, and the Patroni beside it.
type Node struct {
	*Cluster
	name    string
	rest    int // the port of its Patroni
	program string
	patroni *process     // nil after Crash
	silence net.Listener // on the server's port after Crash, else nil
}

// A process runs until it is killed, with all that it has started in its group.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
}

// StartPatroni starts so many nodes with the programs in the folder, and returns when they replicate.
func StartPatroni(ctx context.Context, programs string, nodes int) (*Patroni, error) {
	p := &Patroni{}
	err := p.start(ctx, programs, nodes)
	if err == nil {
		_, err = p.Settled(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting Patroni for tests: %w", err), p.Stop())
	}
	return p, nil
}

func (p *Patroni) start(ctx context.Context, programs string, nodes int) (err error) {
	if p.home, err = place(ctx, Options{Network: true}); err != nil {
		return err
	}
	if err := p.home.take(programs); err != nil {
		return err
	}
	if err := p.startStore(); err != nil {
		return err
	}
	var hosts, ports []string
	for i := range nodes {
		n, err := p.node(ctx, "node"+strconv.Itoa(i+1))
		if err != nil {
			return err
		}
		p.Nodes = append(p.Nodes, n)
		hosts, ports = append(hosts, "127.0.0.1"), append(ports, strconv.Itoa(n.port))
		if err := n.Return(); err != nil {
			return err
		}
	}
	p.URL = "postgres://postgres@/postgres?sslmode=disable&host=" + strings.Join(hosts, ",") + "&port=" + strings.Join(ports, ",")
	return nil
}

// take copies the programs to where the user that runs servers may read them.
func (c *Cluster) take(programs string) error {
	if err := os.CopyFS(c.programs(), os.DirFS(programs)); err != nil {
		return err
	}
	return filepath.WalkDir(c.programs(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		return handOver(path)
	})
}

func (c *Cluster) programs() string { return filepath.Join(c.folder, "programs") }

// startStore starts the store of the configuration: one member of etcd. Tests do not kill it.
func (p *Patroni) startStore() (err error) {
	p.client = p.home.port
	peer, err := FreePort()
	if err != nil {
		return err
	}
	at := func(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }
	p.etcd, err = p.home.launch("etcd", filepath.Join(p.home.programs(), "etcd"), "--name", "one", "--data-dir", filepath.Join(p.home.folder, "etcd.data"),
		"--listen-client-urls", at(p.client), "--advertise-client-urls", at(p.client), "--listen-peer-urls", at(peer),
		"--initial-advertise-peer-urls", at(peer), "--initial-cluster", "one="+at(peer))
	return err
}

// node makes the folder and the settings of a node.
func (p *Patroni) node(ctx context.Context, name string) (*Node, error) {
	c, err := place(ctx, Options{Network: true})
	if err != nil {
		return nil, err
	}
	n := &Node{Cluster: c, name: name, program: filepath.Join(p.home.programs(), "patroni")}
	if n.rest, err = FreePort(); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	text := PatroniSettings + fmt.Sprintf(otherSettings, name, p.client, n.rest, n.port, n.data(), n.bin, filepath.Join(n.folder, "pgpass"), n.folder)
	if err := os.WriteFile(n.settings(), []byte(text), 0o600); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return n, handOver(n.settings())
}

func (n *Node) settings() string { return filepath.Join(n.folder, "patroni.yml") }

// launch starts a program as the user that runs servers. It ends with the test at the latest.
func (c *Cluster) launch(name, program string, args ...string) (*process, error) {
	log, err := os.OpenFile(c.said(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the process has its own
	cmd := exec.Command(program, args...)
	cmd.Dir = c.folder
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8", "HOME=" + c.folder} // no setting of a Patroni on this machine
	cmd.Stdout, cmd.Stderr = log, log
	asOther(cmd)
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	endWithTest(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd, make(chan struct{})}
	go func() {
		defer close(p.ended)
		_ = cmd.Wait()
	}()
	return p, nil
}

func (c *Cluster) said(name string) string { return filepath.Join(c.folder, name+".log") }

// kill kills the process and its children, and returns when it has ended. A server that Patroni has started is no longer in the
// group.
func (p *process) kill() {
	if p == nil {
		return
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // it may have ended
	<-p.ended
}

// Crash kills the server and its Patroni, as the death of their machine does: whoever connects gets no answer, until Return.
func (n *Node) Crash(ctx context.Context) error {
	n.patroni.kill() // first: it would start the server again
	n.patroni = nil
	if err := n.Cluster.Crash(ctx); err != nil {
		return err
	}
	var err error // nobody accepts what the system has connected
	n.silence, err = (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(n.port)))
	return err
}

// speak ends the silence after Crash.
func (n *Node) speak() error {
	if n.silence == nil {
		return nil
	}
	defer func() { n.silence = nil }()
	return n.silence.Close()
}

// Return starts the Patroni of a node that is new or dead, which starts the server on the data that are there.
func (n *Node) Return() (err error) {
	if err := n.speak(); err != nil {
		return err
	}
	n.crashed = false
	n.patroni, err = n.launch("patroni", n.program, n.settings())
	return err
}

// Settled returns the node that accepts writes when all others follow it, and one of them has all that it acknowledges: only then
// will Patroni promote one.
func (p *Patroni) Settled(ctx context.Context) (primary *Node, err error) {
	ctx, cancel := context.WithTimeout(ctx, patroniBound)
	defer cancel()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		members, seen := p.members(ctx)
		if primary = p.settled(members); primary != nil {
			return primary, nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("timed out waiting on the nodes of Patroni to follow a primary; the last ones seen are %+v", members), seen, p.endOfLogs())
		}
	}
}

// A patroniMember is what Patroni says of a node.
type patroniMember struct {
	Name     string `json:"name"`
	Role     string `json:"role"`
	State    string `json:"state"`
	Timeline int    `json:"timeline"`
}

// runs reports whether the server answers; newer versions of Patroni say that a standby streams.
func (m patroniMember) runs() bool { return m.State == "running" || m.State == "streaming" }

// settled returns the primary, or nil if the nodes do not all follow one.
func (p *Patroni) settled(members []patroniMember) (primary *Node) {
	timeline, running, synchronous := 0, 0, 0
	for _, m := range members {
		if m.Role != "leader" {
			continue
		}
		timeline = m.Timeline
		for _, n := range p.Nodes {
			if n.name == m.Name {
				primary = n
			}
		}
	}
	for _, m := range members {
		if m.runs() && m.Timeline == timeline {
			running++
		}
		if m.Role == "sync_standby" {
			synchronous++
		}
	}
	if running < len(p.Nodes) || synchronous == 0 {
		return nil
	}
	return primary
}

// members asks the nodes until one answers.
func (p *Patroni) members(ctx context.Context) (members []patroniMember, err error) {
	for _, n := range p.Nodes {
		if n.patroni == nil {
			continue
		}
		all, asked := n.ask(ctx)
		if asked == nil {
			return all, nil
		}
		err = errors.Join(err, asked)
	}
	return nil, err
}

// ask returns what the Patroni of the node knows of all nodes.
func (n *Node) ask(ctx context.Context) ([]patroniMember, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/cluster", n.rest), nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	var all struct {
		Members []patroniMember `json:"members"`
	}
	err = json.NewDecoder(answer.Body).Decode(&all)
	return all.Members, err
}

// endOfLogs returns the ends of the nodes' logs.
func (p *Patroni) endOfLogs() error {
	const most = 3000
	var errs []error
	for _, n := range p.Nodes {
		log, err := os.ReadFile(n.said("patroni"))
		errs = append(errs, err, fmt.Errorf("the log of %s ends with:\n%s", n.name, log[max(0, len(log)-most):]))
	}
	return errors.Join(errs...)
}

// Stop kills all processes and removes their folders.
func (p *Patroni) Stop() error {
	var errs []error
	for _, n := range p.Nodes {
		n.patroni.kill()
	}
	for _, n := range p.Nodes {
		errs = append(errs, n.speak(), n.Stop())
	}
	p.etcd.kill()
	if p.home != nil {
		errs = append(errs, p.home.Stop())
	}
	return errors.Join(errs...)
}
