//go:build unix

package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// other returns the user that runs the servers for root, whom they refuse.
func other() (uid, gid int, err error) {
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.Atoi(found.Uid)
		gid, gidErr := strconv.Atoi(found.Gid)
		if uidErr == nil && gidErr == nil {
			return uid, gid, nil
		}
	}
	return 0, 0, fmt.Errorf("root can not run servers for tests, and there is no user postgres or nobody to do so")
}

// asOther makes another user run the command, if this one is root.
func asOther(cmd *exec.Cmd) {
	if os.Getuid() != 0 {
		return
	}
	uid, gid, err := other()
	if err != nil {
		cmd.Err = err
		return
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

// handOver gives the folder to that user.
func handOver(folder string) error {
	if os.Getuid() != 0 {
		return nil
	}
	uid, gid, err := other()
	if err != nil {
		return err
	}
	return os.Chown(folder, uid, gid)
}
