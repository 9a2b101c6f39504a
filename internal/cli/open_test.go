package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPlacesOfStores(t *testing.T) {
	for text, want := range map[string]place{
		"memory:":               {kind: "memory", shown: "memory:"},
		"MEMORY:":               {kind: "memory", shown: "memory:"},
		"sqlite:jq.db":          {kind: "sqlite", path: "jq.db", shown: "sqlite:jq.db"},
		"sqlite:/var/lib/jq.db": {kind: "sqlite", path: "/var/lib/jq.db", shown: "sqlite:/var/lib/jq.db"},
		"sqlite:a?b%20c":        {kind: "sqlite", path: "a?b%20c", shown: "sqlite:a?b%20c"},
		"postgres://me:pw@host:5432/db?sslmode=disable": {
			kind: "postgres", dsn: "postgres://me:pw@host:5432/db?sslmode=disable", shown: "postgres://me@host:5432/db",
		},
		"postgresql:///db?host=/tmp&password=pw&schema=my+jobs&pooled=true": {
			kind: "postgres", dsn: "postgresql:///db?host=%2Ftmp&password=pw", schema: "my jobs", pooled: true, shown: "postgres:///db",
		},
		"postgres://me@h/db?max_conns=8": {kind: "postgres", dsn: "postgres://me@h/db?max_conns=8", shown: "postgres://me@h/db"},
	} {
		got, err := kinds(nil).parse(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{
		"", ":", "jq.db", "mysql://host", "memory:x", "sqlite:", "sqlite://jq.db", "sqlite:a\x00b", "postgres:db", "postgres://h/%zz",
		"postgres://h/db?pooled=yes", "postgres://h/db?a=%zz",
	} {
		_, err := kinds(nil).parse(text)
		assert.Error(t, err, text)
	}
}

// The parser accepts or refuses any text, and never shows a password.
func FuzzParsePlace(f *testing.F) {
	for _, text := range []string{
		"memory:", "sqlite:jq.db", "postgres://me:SECRET@host/db", "postgres://me:SECRET@host/db?schema=x&pooled=true",
		"postgres://me:SECRET%@host/db", "postgresql://host/db?password=SECRET&sslpassword=SECRET", "postgres:me:SECRET@host",
		"mysql://me:SECRET@host/db", "user=me password=SECRET host=h", "me:SECRET@host", "SECRET", "postgres://me:SECRET/@host",
		"postgres://me:x#SECRET@host/db", "postgres://me:x?SECRET@host/db",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := kinds(nil).parse(text)
		if err != nil {
			assert.NotContains(t, err.Error(), "SECRET")
			assert.NotContains(t, err.Error(), "\n")
			return
		}
		assert.Contains(t, []string{"memory", "sqlite", "postgres"}, p.kind)
		assert.Equal(t, p.shown, kinds(nil).shown(text))
		if _, password, ok := strings.Cut(text, ":SECRET@"); ok && p.kind == "postgres" && !strings.Contains(password, "SECRET") {
			assert.NotContains(t, p.shown, "SECRET")
		}
		if p.kind != "postgres" { // unusual Postgres hosts are shown in another spelling
			again, err := kinds(nil).parse(p.shown)
			require.NoError(t, err, "what is shown is a URL too: %q", p.shown)
			assert.Equal(t, p, again)
		}
	})
}
