//go:build unix

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// checkSecret returns an error if other users can read or change the file.
func checkSecret(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return secretFrom(f.Name(), info.Mode(), int(info.Sys().(*syscall.Stat_t).Uid), os.Geteuid())
}

// secretFrom returns an error unless the file belongs to the user of this process or to root, only its owner can write it, and
// only its owner and group can read it. The group may read, because Kubernetes mounts secrets that way.
func secretFrom(path string, mode fs.FileMode, owner, self int) error {
	const wrong = 0o027
	switch {
	case owner != self && owner != 0:
		return fmt.Errorf("%s belongs to user %d, who can change it: run chown %d %s and chmod 600 %s", path, owner, self, path, path)
	case mode.Perm()&wrong != 0:
		return fmt.Errorf("%s has mode %04o, so other users can read or change it: run chmod 600 %s", path, mode.Perm(), path)
	}
	return nil
}

// keepOwner gives the file the owner of the file it replaces, if there was one.
func keepOwner(f *os.File, before os.FileInfo) error {
	if before == nil {
		return nil
	}
	now, err := f.Stat()
	if err != nil {
		return err
	}
	was, is := before.Sys().(*syscall.Stat_t), now.Sys().(*syscall.Stat_t)
	if was.Uid == is.Uid && was.Gid == is.Gid {
		return nil
	}
	if err := f.Chown(int(was.Uid), int(was.Gid)); err != nil {
		return fmt.Errorf("%w: change the file as its owner, user %d", err, was.Uid)
	}
	return nil
}

// syncFolder makes changes of names in the folder durable.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

func sameOwner(one, other os.FileInfo) bool {
	a, b := one.Sys().(*syscall.Stat_t), other.Sys().(*syscall.Stat_t)
	return a.Uid == b.Uid && a.Gid == b.Gid
}
