package pgtest

import "syscall"

// left returns how many bytes are left for files in a folder: none if the folder does not exist.
func left(folder string) int {
	var found syscall.Statfs_t
	if err := syscall.Statfs(folder, &found); err != nil {
		return 0
	}
	return int(found.Bavail) * int(found.Bsize)
}
