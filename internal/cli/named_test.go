package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// named is a command as pages name it, in a sentence or at the begin of a line in a block for the shell.
var named = regexp.MustCompile("`jobq ([^`\n]+)`|(?m)^(?:\\$ )?(?:[A-Z_]+=\\S+ )*(?:\\./)?jobq ([^`|&;#>\n]+)")

// Every command and every flag that a page names exists. Transcripts are run as well; commands that need a machine of their own are not.
func TestPagesNameCommandsThatExist(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../docs/guides/*.md", "../../examples/*/*.md", "../../deploy/*.*"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		pages = append(pages, found...)
	}
	commands := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, match := range named.FindAllStringSubmatch(string(text), -1) {
			words := strings.Fields(match[1] + match[2])
			if strings.HasSuffix(words[0], ":") || strings.HasSuffix(words[1%len(words)], ":") {
				continue // an error message
			}
			commands++
			assert.Empty(t, unknown(words), "%s names: jobq %s", filepath.Base(page), strings.Join(words, " "))
		}
	}
	assert.Greater(t, commands, 200)
}

// unknown returns what the program does not know of the words of a command line.
func unknown(words []string) (missing []string) {
	a := &app{std: quiet(nil, nil), flagged: map[string]bool{}, sources: map[string]string{}}
	cmd, _, err := a.root().Find(words)
	if err != nil || !cmd.HasParent() {
		return words[:1]
	}
	for _, word := range words {
		name, isFlag := strings.CutPrefix(word, "--")
		name, _, _ = strings.Cut(strings.Trim(name, "`',.:)"), "=")
		if isFlag && name != "" && name != "help" && cmd.Flag(name) == nil {
			missing = append(missing, word)
		}
	}
	return missing
}

func TestUnknownWordsAreFound(t *testing.T) {
	for line, want := range map[string]string{
		"queues set mail --rate 100/1m --fair=false": "", "serve --addr :7070": "",
		"queue set": "queue", "queues set mail --rates 1": "--rates", "jobs ls --limit-key=a --nothing": "--nothing",
	} {
		assert.Equal(t, want, strings.Join(unknown(strings.Fields(line)), " "), line)
	}
}
