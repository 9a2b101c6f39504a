package httpapi

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/wire"
)

// tokens makes one of each role.
func tokens(t *testing.T) (*Tokens, map[Role]string) {
	t.Helper()
	var file bytes.Buffer
	secrets := map[Role]string{}
	for _, role := range roles {
		secret, token, err := NewToken(Token{Name: "the " + string(role), Role: role})
		require.NoError(t, err)
		secrets[role] = secret
		file.Write(token.Line())
	}
	known, err := ReadTokens(&file)
	require.NoError(t, err)
	require.Equal(t, len(roles), known.Len())
	return known, secrets
}

// TestRolesMayDoWhatIsTheirs asks for everything with every role.
func TestRolesMayDoWhatIsTheirs(t *testing.T) {
	known, secrets := tokens(t)
	w := newWorld(t, Options{Tokens: known})
	for _, one := range examples() {
		if one.operation == "events" || one.operation == "wakeups" {
			continue // see below
		}
		for role, secret := range secrets {
			got := w.ask(one.method, one.path, `{"colour":"red"}`, "Authorization", "Bearer "+secret)
			if allowed(one.operation, role) {
				assert.NotContains(t, []int{401, 403}, got.status, "%s by %s", one.operation, role)
				continue
			}
			assert.Equal(t, 403, got.status, "%s by %s", one.operation, role)
			assert.Equal(t, urn+"forbidden", got.fail(t).Type)
		}
	}
	for role, secret := range secrets {
		if allowed("events", role) {
			w.follow("GET", "/v1/events", "", "Authorization", "Bearer "+secret)
		}
		got := w.ask("POST", "/v1/wakeups", `{"colour":1}`, "Authorization", "Bearer "+secret)
		assert.Equal(t, allowed("wakeups", role), got.status == 400, "%s: %d", role, got.status)
	}
	for _, secret := range secrets {
		assert.NotContains(t, w.logged.String(), secret)
	}
	assert.Empty(t, w.counts())
}

// allowed is the table of roles, written a second time.
func allowed(operation string, role Role) bool {
	switch operation {
	case "enqueue", "seal":
		return role == Producer || role == Operator
	case "claim", "ack", "nack", "extend", "checkpoint", "release", "recover", "settle", "beat", "leave", "wakeups", "fire", "waited-for":
		return role == Worker || role == Operator
	case "bulk", "cancel", "requeue", "reschedule", "delete", "pause", "resume", "set-policy", "fence",
		"set-schedule", "delete-schedule", "pause-schedule", "resume-schedule", "reset-schedule", "run-schedule":
		return role == Operator
	case "count", "stats", "session", "logout", "preview": // by which clients see that they are known, or which tells nothing of the store
		return true
	case "schedules", "schedule": // workers look for those that are due
		return role != Producer
	case "job", "graph", "groups", "group":
		return role != Worker
	case "jobs", "list", "overview", "activity", "errors", "due", "queues", "policy", "workers", "events", "metrics":
		return role == Viewer || role == Operator
	default: // what needs no token
		return true
	}
}

// TestTokensThatAreNone are refused, whatever is nearly right about them, and are quoted nowhere.
func TestTokensThatAreNone(t *testing.T) {
	known, secrets := tokens(t)
	secret := secrets[Operator]
	w := newWorld(t, Options{Tokens: known})
	for _, header := range []string{
		"", "Bearer", "Bearer ", "Bearer x", "Basic " + secret, secret, "Bearer " + secret[:len(secret)-1], "Bearer " + secret + "A",
		"Bearer " + strings.ToUpper(secret), "Bearer " + strings.Repeat("x", 8000),
	} {
		got := w.ask("GET", "/v1/stats", "", "Authorization", header)
		assert.Equal(t, 401, got.status, "%.40s", header)
		assert.Equal(t, `Bearer realm="jq"`, got.header.Get("WWW-Authenticate"))
		if len(header) > 10 {
			assert.NotContains(t, got.text+w.logged.String(), header[8:])
		}
	}
	for _, header := range []string{"Bearer " + secret, "bearer " + secret, "BEARER  " + secret} {
		assert.Equal(t, 200, w.ask("GET", "/v1/stats", "", "Authorization", header).status)
	}
	for path, status := range map[string]int{"/healthz": 200, "/readyz": 200, "/openapi.json": 200, "/docs": 200, "/": 302} {
		assert.Equal(t, status, w.ask("GET", path, "").status, "%s needs no token", path)
	}
	assert.Equal(t, 401, w.ask("GET", "/metrics", "").status)
}

// TestFileWithoutTokensLetsNobodyIn: it is not the same as no file.
func TestFileWithoutTokensLetsNobodyIn(t *testing.T) {
	none, err := ReadTokens(strings.NewReader("\n\n"))
	require.NoError(t, err)
	assert.Equal(t, 401, newWorld(t, Options{Tokens: none}).ask("GET", "/v1/stats", "", "Authorization", "Bearer x").status)
	assert.Equal(t, 200, newWorld(t, Options{}).ask("GET", "/v1/stats", "").status)
}

func TestSecretIsNotKept(t *testing.T) {
	secret, token, err := NewToken(Token{Name: "n", Role: Worker})
	require.NoError(t, err)
	again, other, err := NewToken(Token{Name: "n", Role: Worker})
	require.NoError(t, err)
	assert.NotEqual(t, secret, again)
	assert.NotEqual(t, token.Hash, other.Hash)
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(secret, "jq_"))
	require.NoError(t, err)
	assert.Len(t, raw, 32, "256 bits")
	assert.NotContains(t, string(token.Line()), secret)
	assert.Equal(t, 1, bytes.Count(token.Line(), []byte("\n")))
}

// TestTokenFileThatIsWrong: errors name the line, and quote nothing of it.
func TestTokenFileThatIsWrong(t *testing.T) {
	_, token, err := NewToken(Token{Name: "good", Role: Viewer})
	require.NoError(t, err)
	good := string(token.Line())
	hash := strings.Repeat("ab", 32)
	for line, says := range map[string]string{
		"jq_secret": "line 2: want", `{"name":"n","role":"viewer","token":"jq_secret"}`: "line 2: want",
		`{"name":"","role":"viewer","sha256":"` + hash + `"}`:                        "line 2: the name of a token",
		`{"name":"a\nb","role":"viewer","sha256":"` + hash + `"}`:                    "line 2: the name of a token",
		`{"name":"n","role":"jq_secret","sha256":"` + hash + `"}`:                    "line 2: the role of a token",
		`{"name":"n","role":"viewer","sha256":"jq_secret"}`:                          "line 2: sha256 must be",
		`{"name":"n","role":"viewer","sha256":"` + strings.ToUpper(hash) + `"}`:      "line 2: sha256 must be",
		fmt.Sprintf(`{"name":"other","role":"operator","sha256":"%s"}`, token.Hash):  "line 2: the token is there twice",
		`{"name":"n","role":"viewer","sha256":"` + hash + `","expires":"jq_secret"}`: "line 2: want",
		`{"name":"n","role":"viewer","sha256":"` + hash + `","expires":null}`:        "line 2: want",
		strings.Repeat("jq_secret", 1000):                                            "line 2: it is longer than",
	} {
		_, err := ReadTokens(strings.NewReader(good + line + "\n"))
		require.ErrorContains(t, err, says, line)
		assert.NotContains(t, err.Error(), "jq_secret")
	}
	for _, bad := range []Token{{Name: "", Role: Viewer}, {Name: "n", Role: "king"}, {Name: strings.Repeat("n", 256), Role: Viewer}} {
		_, _, err := NewToken(Token{Name: bad.Name, Role: bad.Role})
		require.Error(t, err)
	}
}

// TestPagesOfOtherSitesChangeNothing: a browser says where a request comes from.
func TestPagesOfOtherSitesChangeNothing(t *testing.T) {
	w := newWorld(t, Options{})
	job := `{"jobs":[{"kind":"k"}]}`
	for _, headers := range [][]string{
		{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}, {"Origin", "null"},
	} {
		assert.Equal(t, urn+"cross_origin", w.ask("POST", wire.PathJobs, job, headers...).fail(t).Type, headers)
	}
	assert.Empty(t, w.counts())
	for _, headers := range [][]string{{}, {"Sec-Fetch-Site", "same-origin"}, {"Sec-Fetch-Site", "none"}, {"Origin", w.url}} {
		assert.Equal(t, 201, w.ask("POST", wire.PathJobs, job, headers...).status, headers)
	}
	assert.Equal(t, 200, w.ask("GET", "/v1/stats", "", "Sec-Fetch-Site", "cross-site").status, "what changes nothing is not refused")
}
