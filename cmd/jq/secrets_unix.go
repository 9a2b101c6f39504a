//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

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
