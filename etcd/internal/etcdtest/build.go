package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// The packages of programs, which are modules too.
const (
	server = "go.etcd.io/etcd/server/v3"
	utl    = "go.etcd.io/etcd/etcdutl/v3"
)

// Build builds the server if need be. Call it before tests whose time is bounded: on a slow machine it takes minutes.
func Build(ctx context.Context) error {
	_, err := program(ctx, server)
	return err
}

// program returns the path of a program. It builds it if no test on this machine has done so before, which takes half a minute for the server.
func program(ctx context.Context, of string) (string, error) {
	here, err := goCommand(ctx, "list", "-f", "{{.Dir}}", "github.com/seed-ed332417/jq/etcd/internal/etcdtest")
	if err != nil {
		return "", err
	}
	module := filepath.Join(here, "..", "..", "..", "internal", "etcdserver")
	version, err := goCommand(ctx, "-C", module, "list", "-m", "-f", "{{.Version}}", of)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	folder := filepath.Join(cache, "jq-etcdtest", version+"-"+runtime.Version())
	name := "etcd"
	if of == utl {
		name = "etcdutl"
	}
	path := filepath.Join(folder, name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	// Several tests may build it at once: each does so under a name of its own.
	work, err := os.MkdirTemp(folder, "build-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(work) }()
	built := filepath.Join(work, name)
	if _, err := goCommand(ctx, "-C", module, "build", "-o", built, of); err != nil {
		return "", err
	}
	return path, os.Rename(built, path)
}

// goCommand returns what the go command prints, without the flags for the test's own build.
func goCommand(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "GOFLAGS=", "CGO_ENABLED=0", "GOWORK=off")
	out, err := cmd.Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		return "", fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, failed.Stderr)
	}
	return strings.TrimSpace(string(out)), err
}
