//go:build unix

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// checkSecret refuses a file that the wrong people can read or change.
func checkSecret(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return secretFrom(f.Name(), info.Mode(), int(info.Sys().(*syscall.Stat_t).Uid), os.Geteuid()) // as on every Unix
}

// secretFrom refuses what others than the owner and the group can read, what others than the owner can write, and what belongs to
// neither the user of this process nor root. The group may read: so Kubernetes hands out secrets, and administrators keys.
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

// keepOwner gives the file to the owner of the one before it, if there was one.
func keepOwner(f *os.File, before os.FileInfo) error {
	if before == nil {
		return nil
	}
	now, err := f.Stat()
	if err != nil {
		return err
	}
	was, is := before.Sys().(*syscall.Stat_t), now.Sys().(*syscall.Stat_t) // as on every Unix
	if was.Uid == is.Uid && was.Gid == is.Gid {
		return nil
	}
	if err := f.Chown(int(was.Uid), int(was.Gid)); err != nil {
		return fmt.Errorf("%w: change the file as its owner, user %d", err, was.Uid)
	}
	return nil
}

// syncFolder makes a name in the folder last.
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
