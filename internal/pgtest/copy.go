package pgtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// copied returns the folder into which Keep copies the data.
func (c *Cluster) copied() string { return filepath.Join(c.folder, "copied") }

// Keep stops the server, copies its data, and starts it again.
func (c *Cluster) Keep(ctx context.Context) error {
	return c.exchange(ctx, func() error { return c.copy(ctx, c.data(), c.copied()) })
}

// PutBack stops the server and starts it on the data that Keep has copied. Later commits are lost, and the server does not know
// it.
func (c *Cluster) PutBack(ctx context.Context) error {
	return c.exchange(ctx, func() error {
		if err := os.RemoveAll(c.data()); err != nil {
			return err
		}
		return c.copy(ctx, c.copied(), c.data())
	})
}

func (c *Cluster) exchange(ctx context.Context, data func() error) error {
	if err := c.run(ctx, "pg_ctl", "stop", "--wait", "--silent", "--mode", "fast", "--pgdata", c.data()); err != nil {
		return err
	}
	if err := data(); err != nil {
		return err
	}
	return c.Revive(ctx)
}

func (c *Cluster) copy(ctx context.Context, from, to string) error {
	cmd := exec.CommandContext(ctx, "cp", "-a", from, to)
	asOther(cmd)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("copying the data of the server in %s: %w: %s", c.folder, err, strings.TrimSpace(string(said)))
	}
	return nil
}
