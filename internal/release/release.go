// Package release builds what a release of jq consists of: for each system an archive and a list of the linked modules (SBOM), packages for
// Debian, a formula for Homebrew, and the checksums. The same commit, built with the same version of Go, gives the same bytes.
package release

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const module = "github.com/seed-ed332417/jq"

// A System is what a program runs on, in the words of Go.
type System struct{ OS, Arch string }

func (s System) String() string { return s.OS + "/" + s.Arch }

func (s System) program() string {
	if s.OS == "windows" {
		return "jobq.exe"
	}
	return "jobq"
}

// Systems are those that a release is for.
var Systems = []System{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}}

// Options says what to build.
type Options struct {
	Root    string   // the folder of the repository
	Out     string   // where the files go
	Version string   // such as v0.2.0
	Systems []System // most often Systems
}

// Build writes the files of the release into Options.Out.
func Build(ctx context.Context, o Options) error {
	at, err := commitTime(ctx, o.Root)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "jobq-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return err
	}
	b := &build{Options: o, at: at, work: work}
	if err := b.completions(ctx); err != nil {
		return err
	}
	for _, s := range o.Systems {
		if err := b.system(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	if err := b.formula(); err != nil {
		return err
	}
	return writeSums(o.Out)
}

// A build is one call of Build.
type build struct {
	Options
	at   time.Time // that of the commit, and of every file
	work string
}

// name is what the files for a system begin with.
func (b *build) name(s System) string {
	return strings.Join([]string{"jobq", b.Version, s.OS, s.Arch}, "-")
}

// system builds what there is for one system: first a folder of everything, then files from it.
func (b *build) system(ctx context.Context, s System) error {
	stage := filepath.Join(b.work, b.name(s))
	if err := b.compile(ctx, s, filepath.Join(stage, s.program())); err != nil {
		return err
	}
	notices, err := notices(ctx, b.Root, s)
	if err != nil {
		return err
	}
	if err := write(filepath.Join(stage, noticesFile), notices); err != nil {
		return err
	}
	copied := map[string]string{"LICENSE": "LICENSE", "README.md": "README.md"}
	if s.OS == "linux" {
		copied["deploy/jobq.service"] = "jobq.service"
		copied["deploy/jobq-work.service"] = "jobq-work.service"
	}
	for from, to := range copied {
		if err := copyFile(filepath.Join(b.Root, from), filepath.Join(stage, to)); err != nil {
			return err
		}
	}
	if err := os.CopyFS(filepath.Join(stage, "completions"), os.DirFS(filepath.Join(b.work, "completions"))); err != nil {
		return err
	}
	if err := b.archive(s, stage); err != nil {
		return err
	}
	if err := b.sbom(ctx, s, filepath.Join(stage, s.program())); err != nil {
		return err
	}
	if s.OS == "linux" {
		return b.debian(ctx, s, stage)
	}
	return nil
}

// compile builds the program. The settings of whoever builds must not change it.
func (b *build) compile(ctx context.Context, s System, to string) error {
	_, err := run(ctx, b.Root, s.env(), "go", "build", "-trimpath", "-buildvcs=true",
		"-ldflags", "-s -w -X "+module+"/internal/cli.stamp="+b.Version, "-o", to, "./cmd/jobq")
	return err
}

func (s System) env() []string {
	return []string{
		"GOOS=" + s.OS, "GOARCH=" + s.Arch, "CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFLAGS=-mod=readonly", "GOWORK=off",
	}
}

// shells are those for which the program prints completions, with the names of their files.
var shells = map[string]string{"bash": "jobq.bash", "zsh": "_jobq", "fish": "jobq.fish", "powershell": "jobq.ps1"}

// completions asks the program for them, built for this machine.
func (b *build) completions(ctx context.Context) error {
	host, err := hostSystem(ctx, b.Root)
	if err != nil {
		return err
	}
	program := filepath.Join(b.work, host.program())
	if err := b.compile(ctx, host, program); err != nil {
		return err
	}
	for shell, name := range shells {
		script, err := run(ctx, b.work, nil, program, "completion", shell)
		if err != nil {
			return err
		}
		if err := write(filepath.Join(b.work, "completions", name), script); err != nil {
			return err
		}
	}
	return nil
}

func hostSystem(ctx context.Context, root string) (System, error) {
	said, err := run(ctx, root, nil, "go", "env", "GOHOSTOS", "GOHOSTARCH")
	if err != nil {
		return System{}, err
	}
	fields := strings.Fields(string(said))
	if len(fields) != 2 {
		return System{}, fmt.Errorf("go env names no system: %s", said)
	}
	return System{fields[0], fields[1]}, nil
}

// commitTime is the time of every file, so that it does not matter when a commit is built.
func commitTime(ctx context.Context, root string) (time.Time, error) {
	said, err := run(ctx, root, nil, "git", "log", "-1", "--format=%ct")
	if err != nil {
		return time.Time{}, err
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(string(said)), 10, 64)
	return time.Unix(seconds, 0).UTC(), err
}

// run returns what a command prints. Its error has what the command has complained about.
func run(ctx context.Context, folder string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = folder, append(os.Environ(), env...)
	out, err := cmd.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(failed.Stderr))
	}
	return out, err
}

func write(to string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return write(to, text)
}
