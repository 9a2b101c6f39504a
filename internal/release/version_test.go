package release

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestVersion(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	refused := func(wanted, why string) {
		t.Helper()
		_, err := Version(t.Context(), folder, wanted)
		assert.ErrorContains(t, err, why)
	}
	found := func(wanted, want string) {
		t.Helper()
		got, err := Version(t.Context(), folder, wanted)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	write("jqpgx/go.mod", "module github.com/seed-ed332417/jq/jqpgx\n\nrequire (\n\tgithub.com/seed-ed332417/jq v1.2.3\n)\n")
	write("etcd/go.mod", "module github.com/seed-ed332417/jq/etcd\n\nrequire (\n\tgithub.com/seed-ed332417/jq v1.2.3\n)\n")
	write("tikv/go.mod", "module github.com/seed-ed332417/jq/tikv\n\nrequire (\n\tgithub.com/seed-ed332417/jq v1.2.3\n)\n")
	commit(t, folder)
	revision := strings.TrimSpace(call(t, folder, nil, "git", "rev-parse", "HEAD"))

	found("", "v0.0.0-20260102030405-"+revision[:12])
	found("v1.2.3", "v1.2.3")
	refused("v1.2.4", "go -C etcd mod edit -require=github.com/seed-ed332417/jq@v1.2.4")
	for _, wrong := range []string{"1.2.3", "v1.2", "v01.2.3", "v1.2.3 ", "v2.0.0", "main"} {
		refused(wrong, "want one like v0.2.0")
	}

	call(t, folder, nil, "git", "tag", "v1.2.3")
	call(t, folder, nil, "git", "tag", "jqpgx/v1.2.3")
	found("", "v1.2.3")
	call(t, folder, nil, "git", "tag", "very-good")
	found("", "v1.2.3")
	call(t, folder, nil, "git", "tag", "v1.2.10")
	refused("", "does not require jq v1.2.10")

	write("more.txt", "more")
	found("", "v0.0.0-20260102030405-"+revision[:12]+"+dirty")
	refused("v1.2.3", "commit them before you build v1.2.3")
}

// Go takes no notice of replace directives in a module that somebody else requires. So a module here is either tagged, and requires a version of
// jq, or nobody imports it.
func TestModulesAreTaggedOrImportedByNobody(t *testing.T) {
	var others []string
	listed := call(t, root, nil, "git", "ls-files", "--", "go.mod", "*/go.mod")
	for name := range strings.FieldsSeq(listed) {
		folder := filepath.ToSlash(filepath.Dir(name))
		switch top, _, _ := strings.Cut(folder, "/"); {
		case folder == "." || strings.Contains(folder, "testdata"):
		case top == "examples" || top == "internal" || top == "bench": // to be read, not to be imported
		default:
			others = append(others, folder)
		}
	}
	assert.ElementsMatch(t, Tagged, others)
}
