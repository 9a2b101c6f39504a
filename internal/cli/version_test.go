package cli

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestVersionSaysWhatIsKnown(t *testing.T) {
	platform := ", go1.26.8 " + runtime.GOOS + "/" + runtime.GOARCH
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"}
	modified := debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	cases := []struct {
		name     string
		version  string
		settings []debug.BuildSetting
		want     string
	}{
		{"ReleaseByGoInstall", "v1.2.3", nil, "jobq v1.2.3" + platform},
		{"BuiltFromACommit", "(devel)", []debug.BuildSetting{revision}, "jobq (devel), commit 0123456789ab" + platform},
		{"BuiltFromAChangedTree", "(devel)", []debug.BuildSetting{revision, modified}, "jobq (devel), commit 0123456789ab with local changes" + platform},
		{"NothingKnown", "", nil, "jobq (devel)" + platform},
	}
	for _, k := range cases {
		t.Run(k.name, func(t *testing.T) {
			got := describe(&debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: k.version}, Settings: k.settings})
			assert.Equal(t, k.want, got)
		})
	}
}
