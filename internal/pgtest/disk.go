package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ErrNoDisk says that this system cannot mount a small disk: that takes root on Linux.
var ErrNoDisk = errors.New("no small disk can be mounted here")

// disk returns where the cluster's disk is mounted. The folder exists only if the cluster has a disk.
func (c *Cluster) disk() string { return filepath.Join(c.folder, "disk") }

func (c *Cluster) data() string {
	if _, err := os.Stat(c.disk()); err == nil {
		return filepath.Join(c.disk(), "data")
	}
	return filepath.Join(c.folder, "data")
}

// ballast is a file that fills the disk.
func (c *Cluster) ballast() string { return filepath.Join(c.disk(), "ballast") }

// Fill fills the cluster's disk.
func (c *Cluster) Fill() error {
	f, err := os.OpenFile(c.ballast(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	for size := 1 << 20; size > 0; { // a write that does not fit may be partial
		n, err := f.Write(make([]byte, size))
		if err != nil && n == 0 {
			size /= 2
		}
	}
	return f.Close()
}

// Free undoes Fill.
func (c *Cluster) Free() error { return os.Remove(c.ballast()) }

// mount mounts a disk of that size, kept in memory, on a new folder.
func mount(folder string, size int) error {
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	said, err := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d", size), "jq-pgtest", folder).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: mount: %w: %s", ErrNoDisk, err, strings.TrimSpace(string(said)))
	}
	return handOver(folder)
}

// unmount unmounts the disk, if there is one.
func unmount(folder string) error {
	if _, err := os.Stat(folder); err != nil {
		return nil
	}
	if said, err := exec.Command("umount", folder).CombinedOutput(); err != nil {
		if os.Remove(folder) == nil {
			return nil // nothing was mounted there
		}
		return fmt.Errorf("umount: %w: %s", err, strings.TrimSpace(string(said)))
	}
	return nil
}
