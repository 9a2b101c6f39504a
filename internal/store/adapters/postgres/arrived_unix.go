//go:build unix

package postgres

import (
	"errors"
	"net"
	"syscall"
)

// arrived reports whether the other side has sent something that was not read yet, or has closed the connection.
func arrived(conn net.Conn) bool {
	own, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := own.SyscallConn()
	if err != nil {
		return true
	}
	some := false
	err = raw.Read(func(fd uintptr) bool {
		var first [1]byte
		_, _, err := syscall.Recvfrom(int(fd), first[:], syscall.MSG_PEEK)
		some = !errors.Is(err, syscall.EAGAIN)
		return true
	})
	return some || err != nil
}
