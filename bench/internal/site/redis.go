package site

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"

	goredis "github.com/redis/go-redis/v9"

	"github.com/seed-ed332417/jq/bench/internal/peer"
	"github.com/seed-ed332417/jq/internal/pgtest"
)

// redis is a server that this program has started.
type redis struct {
	addr    string
	process *exec.Cmd
}

// emptyRedis returns the address of an empty server.
func (s *Site) emptyRedis(ctx context.Context) (string, error) {
	if s.redis == nil {
		var err error
		if s.redis, err = startRedis(ctx, s.folder); err != nil {
			return "", err
		}
	}
	client := goredis.NewClient(&goredis.Options{Addr: s.redis.addr})
	defer func() { _ = client.Close() }()
	return s.redis.addr, client.FlushAll(ctx).Err()
}

func startRedis(ctx context.Context, folder string) (*redis, error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, &Absence{"redis-server is not installed"}
	}
	port, err := pgtest.FreePort()
	if err != nil {
		return nil, err
	}
	r := &redis{addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	r.process = exec.Command(program, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", folder, "--save", "",
		"--appendonly", "yes", "--appendfsync", "everysec")
	if err := r.process.Start(); err != nil {
		return nil, err
	}
	client := goredis.NewClient(&goredis.Options{Addr: r.addr})
	defer func() { _ = client.Close() }()
	tries := 0
	err = peer.Until(ctx, func() (bool, error) {
		err := client.Ping(ctx).Err()
		if tries++; err != nil && tries > 5000 {
			return false, fmt.Errorf("redis-server does not answer: %w", err)
		}
		return err == nil, nil
	})
	if err != nil {
		return nil, errors.Join(err, r.stop())
	}
	return r, nil
}

// stop kills the server: nobody needs its data.
func (r *redis) stop() error {
	if err := r.process.Process.Kill(); err != nil {
		return err
	}
	_ = r.process.Wait() // returns that it was killed
	return nil
}
