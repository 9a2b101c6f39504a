package cli

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// stamp is the version of a release. The linker sets it, because a build from a working tree does not know its tag.
var stamp string

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use:         "version",
		Short:       "print the version of this program and of Go",
		Args:        takesNone(),
		Annotations: map[string]string{storeless: ""},
		RunE: func(*cobra.Command, []string) error {
			info, ok := debug.ReadBuildInfo()
			if !ok {
				return errors.New("this binary has no build information: build it with go build, in module mode")
			}
			_, err := fmt.Fprintln(a.out, describe(info))
			return err
		},
	}
}

// describe returns the version, the commit if known, the Go version and the platform.
func describe(info *debug.BuildInfo) string {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	line := "jobq " + cmp.Or(stamp, info.Main.Version, "(devel)")
	if commit := settings["vcs.revision"]; commit != "" {
		line += ", commit " + commit[:min(len(commit), 12)]
		if settings["vcs.modified"] == "true" {
			line += " with local changes"
		}
	}
	return fmt.Sprintf("%s, %s %s/%s", line, info.GoVersion, runtime.GOOS, runtime.GOARCH)
}
