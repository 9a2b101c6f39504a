package sidekiq

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/jqtest"
)

const guide = "../../../docs/guides/migrate-from-sidekiq.md"

// blocks returns the code in Ruby on the page.
func blocks(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile(guide)
	require.NoError(t, err)
	var all []string
	for _, found := range regexp.MustCompile("(?ms)^( *)```ruby\n(.*?)^ *```$").FindAllStringSubmatch(string(page), -1) {
		all = append(all, regexp.MustCompile("(?m)^"+found[1]).ReplaceAllString(found[2], ""))
	}
	require.Len(t, all, 5)
	return all
}

// The page shows parts of the scripts that the other tests run.
func TestPageShowsTheScripts(t *testing.T) {
	shown := blocks(t)
	for file, block := range map[string]string{"jq.rb": shown[2], "move.rb": shown[4]} {
		script, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.True(t, strings.HasSuffix(string(script), block), "copy the end of %s into the page", file)
	}
}

// The call of the page enqueues the job that the class would, and so does a class with the method of the page. A small module stands for
// Sidekiq and Rails.
func TestRubyOfThePage(t *testing.T) {
	store := jqtest.NewStore(t)
	command := ruby(t, store, `require "json"`)
	shown := blocks(t)
	class, call, async := shown[0], shown[1], shown[3]
	declaration, later, found := strings.Cut(class, "\n\nWelcomeMail.perform_in")
	require.True(t, found)
	declaration, found = strings.CutSuffix(declaration, "\nend")
	require.True(t, found)
	script := `
require "./jq"
module Sidekiq
  module Job
    def self.included(base) = base.extend(Options)
    module Options
      def sidekiq_options(options) = @options = options
      def perform_in(seconds, *args) = puts("in #{seconds} s: #{@options} #{args}")
    end
  end
end
class Integer
  def hour = self * 3600
end
class Mailer
  def self.welcome(user, locale) = puts("#{user} #{locale}")
end
` + call + declaration + "\n" + async + `
end
WelcomeMail.perform_in` + later + `
WelcomeMail.new.perform(1, "fr")
WelcomeMail.perform_async(43, "de")
`
	path := filepath.Join(t.TempDir(), "page.rb")
	require.NoError(t, os.WriteFile(path, []byte(script), 0o600))
	out, err := command("", "-I", ".", path).CombinedOutput()
	require.NoError(t, err, string(out))
	lines := strings.Split(string(out), "\n")
	require.Len(t, lines, 3, string(out))
	assert.Regexp(t, `^in 3600 s: .*retry.*5.*\[42, "en"\]$`, lines[0])
	assert.Equal(t, "1 fr", lines[1])
	jqtest.RequireEnqueued(t, store, jqtest.Want{Times: 2})
	later42 := jqtest.RequireEnqueued(t, store, jqtest.Want{Payload: WelcomeMail{42, "en"}, Queue: "mail", Delay: time.Hour, Times: 1})[0]
	assert.Equal(t, 5, later42.MaxRetries)
	jqtest.RequireEnqueued(t, store, jqtest.Want{Payload: WelcomeMail{43, "de"}, Queue: "mail", Times: 1})
}
