//go:build !unix

package postgres

import "net"

// arrived would report whether the other side has closed the connection, but cannot ask here.
func arrived(net.Conn) bool { return false }
