package release

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Tagged are the folders with modules that other programs import, beside the root. A release tags each as FOLDER/VERSION.
var Tagged = []string{"etcd", "jqpgx", "tikv"}

// semantic is what Go takes for a version of a module whose path ends without one, such as /v2.
var semantic = regexp.MustCompile(`^v[01]\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

// Version returns the version to build. It is the wanted one or, if that is empty, the tag of the commit, or else a version that is less than
// every release. It refuses to give a version to a tree that has changes, or whose modules do not require it of each other.
func Version(ctx context.Context, root, wanted string) (string, error) {
	changed, err := run(ctx, root, nil, "git", "status", "--porcelain")
	if err != nil {
		return "", err
	}
	dirty := len(bytes.TrimSpace(changed)) > 0
	if wanted == "" && !dirty {
		tags, err := run(ctx, root, nil, "git", "tag", "--points-at", "HEAD", "--list", "v*", "--sort=-version:refname")
		if err != nil {
			return "", err
		}
		for tag := range strings.FieldsSeq(string(tags)) {
			if wanted == "" && semantic.MatchString(tag) {
				wanted = tag
			}
		}
	}
	switch {
	case wanted == "":
		return unreleased(ctx, root, dirty)
	case !semantic.MatchString(wanted):
		return "", fmt.Errorf("%q is no version: want one like v0.2.0; the path of the module must change before v2.0.0", wanted)
	case dirty:
		return "", fmt.Errorf("the tree has changes that are in no commit: commit them before you build %s", wanted)
	}
	return wanted, requireEach(root, wanted)
}

// unreleased is the version that Go gives a commit without a tag.
func unreleased(ctx context.Context, root string, dirty bool) (string, error) {
	said, err := run(ctx, root, []string{"TZ=UTC"}, "git", "log", "-1", "--format=%cd-%H", "--date=format-local:%Y%m%d%H%M%S")
	if err != nil {
		return "", err
	}
	at, commit, _ := strings.Cut(strings.TrimSpace(string(said)), "-")
	version := fmt.Sprintf("v0.0.0-%s-%.12s", at, commit)
	if dirty {
		version += "+dirty"
	}
	return version, nil
}

// requireEach checks that the tagged modules require this version of the root. Whoever imports them gets what they require: there, their replace
// directives do not count.
func requireEach(root, version string) error {
	for _, folder := range Tagged {
		text, err := os.ReadFile(filepath.Join(root, folder, "go.mod"))
		if err != nil {
			return err
		}
		required := regexp.MustCompile(`(?m)^\s*(?:require )?` + regexp.QuoteMeta(module) + ` (v\S+)`).FindSubmatch(text)
		if required == nil || string(required[1]) != version {
			return fmt.Errorf("%[1]s/go.mod does not require jq %[2]s, so nobody could import it: run"+
				" go -C %[1]s mod edit -require=%[3]s@%[2]s, then go mod tidy in %[1]s and in examples/orm, and commit", folder, version, module)
		}
	}
	return nil
}
