package site

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/seed-ed332417/jq/bench/internal/peer"
	"github.com/seed-ed332417/jq/internal/pgtest"
)

// A replicated is a server of Postgres whose commits wait for a second one.
type replicated struct {
	primary, standby *pgtest.Cluster
	process          int // of the standby
}

func startReplicated(ctx context.Context) (r *replicated, err error) {
	r = &replicated{}
	if r.primary, err = startPostgres(ctx); err != nil {
		return nil, err
	}
	if r.standby, err = r.primary.Standby(ctx); err == nil {
		err = r.primary.Synchronous(ctx, true)
	}
	if err == nil {
		r.process, err = r.standby.Process()
	}
	if err != nil {
		return nil, errors.Join(err, r.stop())
	}
	return r, nil
}

func (r *replicated) stop() error {
	var err error
	if r.standby != nil {
		err = r.primary.Synchronous(context.Background(), false) // else the primary would wait for the standby
		err = errors.Join(err, r.standby.Stop())
	}
	return errors.Join(err, r.primary.Stop())
}

// onReplicated returns a place on two servers of Postgres.
func (s *Site) onReplicated(ctx context.Context) (place peer.Place, remove func() error, err error) {
	if s.replicated == nil {
		if s.replicated, err = startReplicated(ctx); err != nil {
			return place, nil, err
		}
	}
	place.Admin, place.Servers = s.replicated.primary.DSN, []int{s.replicated.process}
	place.DSN, remove, err = s.database(ctx, place.Admin)
	return place, remove, err
}

// A members is a cluster of etcd, which a program of the module of the store on etcd keeps.
type members struct {
	process   *exec.Cmd
	in        io.Closer
	addresses string // HOST:PORT,HOST:PORT,HOST:PORT
}

func startMembers(ctx context.Context, folder string) (m *members, err error) {
	program := filepath.Join(folder, "etcd-cluster")
	build := exec.CommandContext(ctx, "go", "-C", filepath.Join("..", "etcd"), "build", "-o", program, "./internal/etcdtest/cmd/etcd-cluster")
	if said, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w: %s", err, said)
	}
	m = &members{process: exec.Command(program)}
	m.process.Stderr = os.Stderr
	if m.in, err = m.process.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := m.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := m.process.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the cluster of etcd did not start: %w", err), m.stop())
	}
	m.addresses = strings.TrimSpace(line)
	return m, nil
}

func (m *members) stop() error { return errors.Join(m.in.Close(), m.process.Wait()) }

// onMembers returns a place on three members of etcd: a prefix of its own.
func (s *Site) onMembers(ctx context.Context) (place peer.Place, err error) {
	if s.members == nil {
		if s.members, err = startMembers(ctx, s.folder); err != nil {
			return place, err
		}
	}
	return peer.Place{
		Etcd: fmt.Sprintf("etcd://%s/bench_%d", s.members.addresses, s.places), Servers: []int{s.members.process.Process.Pid},
	}, nil
}
