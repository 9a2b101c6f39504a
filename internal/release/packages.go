package release

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"
)

// The tools are run at these versions, and are in no go.mod, so that jq does not require what they do.
const (
	nfpm      = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2"
	cyclonedx = "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0"
)

// tool runs one. An SBOM has the checksum of its tool, so the tool is built as reproducibly as jq.
func (b *build) tool(ctx context.Context, folder string, env []string, name string, args ...string) error {
	host, err := hostSystem(ctx, b.Root)
	if err != nil {
		return err
	}
	env = append(append(host.env(), "GOFLAGS=-trimpath"), env...)
	_, err = run(ctx, folder, env, "go", append([]string{"run", name}, args...)...)
	return err
}

// sbom lists the modules that the program was built from, in the format CycloneDX.
func (b *build) sbom(ctx context.Context, s System, program string) error {
	to, err := filepath.Abs(filepath.Join(b.Out, b.name(s)+".cdx.json"))
	if err != nil {
		return err
	}
	return b.tool(ctx, b.work, nil, cyclonedx, "bin", "-json", "-std", "-noserial", "-notimestamp", "-version", b.Version, "-output", to, program)
}

// debian makes a package of the folder.
func (b *build) debian(ctx context.Context, s System, stage string) error {
	if err := os.CopyFS(filepath.Join(stage, "debian"), os.DirFS(filepath.Join(b.Root, "deploy", "debian"))); err != nil {
		return err
	}
	to, err := filepath.Abs(filepath.Join(b.Out, fmt.Sprintf("jobq_%s_%s.deb", strings.TrimPrefix(b.Version, "v"), s.Arch)))
	if err != nil {
		return err
	}
	env := []string{
		"PACKAGE_ARCH=" + s.Arch, "PACKAGE_VERSION=" + b.Version, "SOURCE_DATE_EPOCH=" + strconv.FormatInt(b.at.Unix(), 10),
	}
	return b.tool(ctx, stage, env, nfpm, "package", "--config", filepath.Join("debian", "nfpm.yaml"), "--packager", "deb", "--target", to)
}

//go:embed formula.rb.tmpl
var formulaText string

// formula writes the one for Homebrew, with the checksums of the archives.
func (b *build) formula() error {
	type archive struct{ OS, Arch, Name, Sum string }
	var archives []archive
	for _, s := range b.Systems {
		homebrew := archive{OS: map[string]string{"darwin": "macos", "linux": "linux"}[s.OS], Arch: map[string]string{"amd64": "intel", "arm64": "arm"}[s.Arch]}
		if homebrew.OS == "" || homebrew.Arch == "" {
			continue
		}
		var err error
		homebrew.Name = b.archiveName(s)
		if homebrew.Sum, err = sumOf(filepath.Join(b.Out, homebrew.Name)); err != nil {
			return err
		}
		archives = append(archives, homebrew)
	}
	filled, err := template.New("formula").Parse(formulaText)
	if err != nil {
		return err
	}
	var text strings.Builder
	err = filled.Execute(&text, map[string]any{
		"Tag": b.Version, "Version": strings.TrimPrefix(b.Version, "v"), "Module": module, "Archives": archives,
	})
	if err != nil {
		return err
	}
	return write(filepath.Join(b.Out, "jobq.rb"), []byte(text.String()))
}
