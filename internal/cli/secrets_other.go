//go:build !unix

package cli

import "os"

// checkSecret checks nothing, because access rights are not file modes here.
func checkSecret(*os.File) error { return nil }

// keepOwner does nothing: a new file inherits the access rights of its folder.
func keepOwner(*os.File, os.FileInfo) error { return nil }

// syncFolder does nothing: a folder cannot be synced here.
func syncFolder(string) error { return nil }

func sameOwner(_, _ os.FileInfo) bool { return true }
