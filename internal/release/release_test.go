package release

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	root    = "../.."
	version = "v0.8.7-rc.1"
)

var (
	committed = time.Date(2026, time.January, 2, 3, 4, 5, 0, time.UTC)
	tested    = System{"linux", "amd64"}
)

// repository copies this tree, as it is, into a repository of its own with one commit, as the procedure in CONTRIBUTING.md leaves it. The same tree
// gives the same commit.
func repository(t *testing.T, folder string) {
	t.Helper()
	listed := call(t, root, nil, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	for name := range strings.SplitSeq(strings.TrimSuffix(listed, "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed, but not from the index yet
		}
		require.NoError(t, err)
		info, err := os.Stat(filepath.Join(root, name))
		require.NoError(t, err)
		to := filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o700))
		require.NoError(t, os.WriteFile(to, text, info.Mode().Perm()))
	}
	for _, nested := range Tagged {
		call(t, filepath.Join(folder, nested), nil, "go", "mod", "edit", "-require="+module+"@"+version)
	}
	commit(t, folder)
	call(t, folder, nil, "git", "tag", version)
	for _, nested := range Tagged {
		if slices.Contains(installed, nested) {
			continue
		}
		call(t, folder, nil, "git", "tag", nested+"/"+version)
	}
	// Go installs no command of a module with a replace directive, so the tag of such a module is on a commit of its own.
	for _, nested := range installed {
		call(t, filepath.Join(folder, nested), nil, "go", "mod", "edit", "-dropreplace="+module)
		commit(t, folder)
		call(t, folder, nil, "git", "tag", nested+"/"+version)
		call(t, folder, nil, "git", "reset", "--quiet", "--hard", version)
	}
}

// installed are the tagged modules that have a command.
var installed = []string{"etcd", "tikv"}

func commit(t *testing.T, folder string) {
	t.Helper()
	at := committed.Format(time.RFC3339)
	env := []string{
		"GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_CONFIG_SYSTEM=" + os.DevNull,
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.org", "GIT_AUTHOR_DATE=" + at,
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.org", "GIT_COMMITTER_DATE=" + at,
	}
	call(t, folder, env, "git", "init", "-q", "-b", "main")
	call(t, folder, env, "git", "add", "-A")
	call(t, folder, env, "git", "commit", "-q", "-m", "a release")
}

func call(t *testing.T, folder string, env []string, name string, args ...string) string {
	t.Helper()
	out, err := run(t.Context(), folder, env, name, args...)
	require.NoError(t, err)
	return string(out)
}

// A release of one system, looked at as its users do.
func TestRelease(t *testing.T) {
	one, other := filepath.Join(t.TempDir(), "jq"), filepath.Join(t.TempDir(), "elsewhere", "jq")
	repository(t, one)
	repository(t, other)
	out := t.TempDir()
	built, err := Version(t.Context(), one, "")
	require.NoError(t, err)
	require.Equal(t, version, built, "the tag of the commit")
	require.NoError(t, Build(t.Context(), Options{Root: one, Out: out, Version: built, Systems: []System{tested}}))

	program := filepath.Join(t.TempDir(), "jobq")
	archive := unpacked(t, filepath.Join(out, "jobq-"+version+"-linux-amd64.tar.gz"))
	require.NoError(t, os.WriteFile(program, archive["jobq-"+version+"-linux-amd64/jobq"].text, 0o700))

	t.Run("EachBuildGivesTheSameBytes", func(t *testing.T) {
		t.Setenv("TZ", "Asia/Tokyo")
		t.Setenv("GOFLAGS", "-tags=other")
		t.Setenv("GOAMD64", "v2")
		again := t.TempDir()
		require.NoError(t, Build(t.Context(), Options{Root: other, Out: again, Version: version, Systems: []System{tested}}))
		assert.Equal(t, sums(t, out), sums(t, again))
	})
	t.Run("Files", func(t *testing.T) {
		var names []string
		for name, file := range archive {
			names = append(names, strings.TrimPrefix(name, "jobq-"+version+"-linux-amd64/"))
			assert.Equal(t, committed, file.head.ModTime.UTC(), name)
			assert.Empty(t, file.head.Uname+file.head.Gname, name)
		}
		assert.ElementsMatch(t, []string{
			"LICENSE", "README.md", "THIRD_PARTY_LICENCES.txt", "jobq", "jobq.service", "jobq-work.service",
			"completions/_jobq", "completions/jobq.bash", "completions/jobq.fish", "completions/jobq.ps1",
		}, names)
		assert.EqualValues(t, 0o755, archive["jobq-"+version+"-linux-amd64/jobq"].head.Mode)
		assert.EqualValues(t, 0o644, archive["jobq-"+version+"-linux-amd64/jobq.service"].head.Mode)
	})
	t.Run("Program", func(t *testing.T) {
		skipOffLinux(t)
		said := call(t, out, nil, program, "version")
		revision := strings.TrimSpace(call(t, one, nil, "git", "rev-parse", "HEAD"))
		assert.Contains(t, said, "jobq "+version+", commit "+revision[:12]+", go")
		assert.NotContains(t, said, "changes")
	})
	t.Run("Checksums", func(t *testing.T) { checksums(t, out) })
	t.Run("Notices", func(t *testing.T) {
		notices := string(archive["jobq-"+version+"-linux-amd64/"+noticesFile].text)
		for _, dep := range modules(t, program) {
			assert.Contains(t, notices, "\n"+dep+"\n")
		}
		assert.Contains(t, notices, "Copyright 2009 The Go Authors")
	})
	t.Run("SBOM", func(t *testing.T) {
		text, err := os.ReadFile(filepath.Join(out, "jobq-"+version+"-linux-amd64.cdx.json"))
		require.NoError(t, err)
		var listed struct {
			BomFormat string
			Metadata  struct {
				Component struct{ Name, Version string }
			}

			Components []struct{ Name, Version string }
		}
		require.NoError(t, json.Unmarshal(text, &listed))
		assert.Equal(t, "CycloneDX", listed.BomFormat)
		assert.Equal(t, module+" "+version, listed.Metadata.Component.Name+" "+listed.Metadata.Component.Version)
		var got []string
		for _, c := range listed.Components {
			if c.Name != "std" {
				got = append(got, c.Name+" "+c.Version)
			}
		}
		assert.Len(t, listed.Components, len(got)+1, "the standard library is listed too")
		assert.ElementsMatch(t, modules(t, program), got)
	})
	t.Run("Formula", func(t *testing.T) {
		text, err := os.ReadFile(filepath.Join(out, "jobq.rb"))
		require.NoError(t, err)
		name := "jobq-" + version + "-linux-amd64.tar.gz"
		assert.Contains(t, string(text), fmt.Sprintf(`  on_linux do
    on_intel do
      url "https://github.com/seed-ed332417/jq/releases/download/%s/%s"
      sha256 "%s"
    end
  end
`, version, name, sums(t, out)[name]))
		assert.Equal(t, 1, strings.Count(string(text), "sha256"))
	})
	t.Run("Package", func(t *testing.T) { debianPackage(t, filepath.Join(out, "jobq_0.8.7-rc.1_amd64.deb"), program) })
}

// skipOffLinux leaves out what runs the program.
func skipOffLinux(t *testing.T) {
	t.Helper()
	if host := (System{runtime.GOOS, runtime.GOARCH}); host != tested {
		t.Skipf("this machine is %s, and can not run the program for %s", host, tested)
	}
}

// debianPackage looks into the package.
func debianPackage(t *testing.T, deb, program string) {
	t.Helper()
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("there is no dpkg-deb, which reads the package: install dpkg")
	}
	about := call(t, "", nil, "dpkg-deb", "-f", deb)
	for _, line := range []string{"Package: jobq", "Version: 0.8.7~rc.1", "Architecture: amd64", "Depends: passwd"} {
		assert.Contains(t, about, line+"\n")
	}
	assert.Contains(t, call(t, "", nil, "dpkg-deb", "-I", deb), "conffiles")
	folder := t.TempDir()
	call(t, "", nil, "dpkg-deb", "-R", deb, folder) // the files as -x writes them, and those of -e
	want, err := os.ReadFile(program)
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join(folder, "usr/bin/jobq"))
	require.NoError(t, err)
	assert.Equal(t, sha256.Sum256(want), sha256.Sum256(got), "the package has the program of the archive")
	for name, mode := range map[string]fs.FileMode{
		"usr/bin/jobq":                                       0o755,
		"usr/lib/systemd/system/jobq.service":                0o644,
		"usr/lib/systemd/system/jobq.service.d/package.conf": 0o644,
		"etc/jobq.env":                                       0o640,
		"usr/share/bash-completion/completions/jobq":         0o644,
		"usr/share/zsh/vendor-completions/_jobq":             0o644,
		"usr/share/fish/vendor_completions.d/jobq.fish":      0o644,
		"usr/share/doc/jobq/copyright":                       0o644,
		"usr/share/doc/jobq/THIRD_PARTY_LICENCES.txt":        0o644,
		"usr/share/doc/jobq/examples/jobq-work.service":      0o644,
		"DEBIAN/postinst":                                    0o755,
		"DEBIAN/prerm":                                       0o755,
		"DEBIAN/postrm":                                      0o755,
	} {
		info, err := os.Stat(filepath.Join(folder, name))
		if assert.NoError(t, err) {
			assert.Equal(t, mode, info.Mode().Perm(), name)
		}
	}
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		call(t, "", nil, "sh", "-n", filepath.Join(folder, "DEBIAN", script))
	}
	conffiles, err := os.ReadFile(filepath.Join(folder, "DEBIAN/conffiles"))
	require.NoError(t, err)
	assert.Equal(t, "/etc/jobq.env", strings.TrimSpace(string(conffiles)))
	unit(t, folder)
	workUnit(t, folder)
}

// unit lets systemd read the unit with what the package changes of it.
func unit(t *testing.T, folder string) {
	t.Helper()
	units := filepath.Join(folder, "usr/lib/systemd/system")
	changes, err := os.ReadFile(filepath.Join(units, "jobq.service.d/package.conf"))
	require.NoError(t, err)
	assert.Contains(t, string(changes), "\nExecStart=\nExecStart=/usr/bin/jobq serve\n")
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Log("not read by systemd-analyze, which is not on this machine")
		return
	}
	here := strings.ReplaceAll(string(changes), "=/usr/bin/jobq", "="+filepath.Join(folder, "usr/bin/jobq")) // it looks for the program
	require.NoError(t, os.WriteFile(filepath.Join(units, "jobq.service.d/package.conf"), []byte(here), 0o600))
	call(t, "", []string{"SYSTEMD_UNIT_PATH=" + units + ":"}, "systemd-analyze", "verify", "--man=no", "jobq.service")
}

// workUnit lets systemd read the example of a unit for a worker.
func workUnit(t *testing.T, folder string) {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Log("not read by systemd-analyze, which is not on this machine")
		return
	}
	text, err := os.ReadFile(filepath.Join(folder, "usr/share/doc/jobq/examples/jobq-work.service"))
	require.NoError(t, err)
	require.Contains(t, string(text), "\nExecStart=/usr/local/bin/jobq work ")
	here := strings.ReplaceAll(string(text), "=/usr/local/bin/jobq", "="+filepath.Join(folder, "usr/bin/jobq")) // it looks for the program
	units := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(units, "jobq-work.service"), []byte(here), 0o600))
	call(t, "", []string{"SYSTEMD_UNIT_PATH=" + units + ":"}, "systemd-analyze", "verify", "--man=no", "jobq-work.service")
}

// modules are those of go version -m.
func modules(t *testing.T, program string) []string {
	t.Helper()
	info, err := buildinfo.ReadFile(program)
	require.NoError(t, err)
	var names []string
	for _, dep := range info.Deps {
		require.Nil(t, dep.Replace)
		names = append(names, dep.Path+" "+dep.Version)
	}
	require.NotEmpty(t, names)
	return names
}

// checksums checks what is written, and that nothing is left out.
func checksums(t *testing.T, out string) {
	t.Helper()
	got := sums(t, out)
	delete(got, sumsFile)
	want := map[string]string{}
	f, err := os.Open(filepath.Join(out, sumsFile))
	require.NoError(t, err)
	defer func() { assert.NoError(t, f.Close()) }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		sum, name, ok := strings.Cut(lines.Text(), "  ")
		require.True(t, ok, lines.Text())
		want[name] = sum
	}
	assert.Equal(t, want, got)
	assert.Len(t, got, 4, "an archive, an SBOM, a package and a formula")
}

func sums(t *testing.T, folder string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	found := map[string]string{}
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		require.NoError(t, err)
		found[entry.Name()] = fmt.Sprintf("%x", sha256.Sum256(text))
	}
	return found
}

type unpackedFile struct {
	head *tar.Header
	text []byte
}

func unpacked(t *testing.T, archive string) map[string]unpackedFile {
	t.Helper()
	text, err := os.ReadFile(archive)
	require.NoError(t, err)
	plain, err := gzip.NewReader(bytes.NewReader(text))
	require.NoError(t, err)
	found := map[string]unpackedFile{}
	for r := tar.NewReader(plain); ; {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err)
		text, err := io.ReadAll(r)
		require.NoError(t, err)
		found[head.Name] = unpackedFile{head, text}
	}
}
