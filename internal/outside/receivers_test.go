package outside

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
)

// A language has code on the page for receivers, and a program here that asks it about requests.
type language struct {
	name    string
	block   string // the language of the code block
	file    string // where the block is put
	harness map[string]string
	run     []string
}

var languages = []language{
	{
		name: "Python", block: "python", file: "verify.py", run: []string{"python3", "-B", "main.py"},
		harness: map[string]string{"main.py": `
import http.client, json, sys
from verify import verify
answers = []
for r in json.load(sys.stdin):
    headers = http.client.HTTPMessage()
    for name, value in r["headers"].items():
        headers[name] = value
    got = verify(r["secrets"], headers, r["body"].encode(), r["now"])
    answers.append("refused" if got is None else "%d %d %s" % got)
print(json.dumps(answers))
`},
	},
	{
		name: "Node", block: "js", file: "verify.js", run: []string{"node", "main.js"},
		harness: map[string]string{"main.js": `
const { verify } = require("./verify.js");
const requests = JSON.parse(require("node:fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(requests.map((r) => {
  const headers = Object.fromEntries(Object.entries(r.headers).map(([name, value]) => [name.toLowerCase(), value]));
  const got = verify(r.secrets, headers, Buffer.from(r.body), r.now);
  return got === null ? "refused" : got.job + " " + got.token + " " + got.kind;
})));
`},
	},
	{
		name: "Go", block: "go", file: "webhook/verify.go", run: []string{"go", "run", "."},
		harness: map[string]string{"go.mod": "module receiver\n\ngo 1.21\n", "main.go": `
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"

	"receiver/webhook"
)

func main() {
	var requests []struct {
		Secrets []string
		Headers map[string]string
		Body    string
		Now     int64
	}
	if err := json.NewDecoder(os.Stdin).Decode(&requests); err != nil {
		panic(err)
	}
	var answers []string
	for _, r := range requests {
		h := http.Header{}
		for name, value := range r.Headers {
			h.Set(name, value)
		}
		answer := "refused"
		if d, err := webhook.Verify(r.Secrets, h, []byte(r.Body), time.Unix(r.Now, 0)); err == nil {
			answer = fmt.Sprint(d.Job, " ", d.Token, " ", d.Kind)
		}
		answers = append(answers, answer)
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		panic(err)
	}
}
`},
	},
}

// The code on the page for receivers takes what this package sends, and nothing that was forged.
func TestCodeForReceiversTellsTrueRequestsFromForgedOnes(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/guides/webhooks.md")
	require.NoError(t, err)
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			blocks := regexp.MustCompile("(?s)\n```"+l.block+"\n(.*?)\n```\n").FindAllSubmatch(page, -1)
			require.Len(t, blocks, 1, "the page must have one block of code in %s", l.name)
			if _, err := exec.LookPath(l.run[0]); err != nil && l.run[0] != "go" {
				t.Skipf("%s is not installed, so that the code in %s can not be tried: %v", l.run[0], l.name, err)
			}
			tries := triesOf(t)
			requests := make([]request, 0, len(tries))
			want := map[string]string{}
			for _, try := range tries {
				requests = append(requests, try.request)
				want[try.name] = try.want
			}
			require.Len(t, want, len(tries), "two tries have the same name")
			answers := l.ask(t, string(blocks[0][1]), requests)
			require.Len(t, answers, len(tries))
			got := map[string]string{}
			for i, try := range tries {
				got[try.name] = answers[i]
			}
			assert.Equal(t, want, got)
		})
	}
}

// ask runs the code and returns what it makes of each request.
func (l language) ask(t *testing.T, code string, requests []request) []string {
	t.Helper()
	folder := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write(l.file, code+"\n")
	for name, text := range l.harness {
		write(name, strings.TrimPrefix(text, "\n"))
	}
	input, err := json.Marshal(requests)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // to build the Go program takes some of it, the first time
	defer cancel()
	cmd := exec.CommandContext(ctx, l.run[0], l.run[1:]...)
	cmd.Dir, cmd.Stdin = folder, bytes.NewReader(input)
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	var answers []string
	require.NoError(t, json.Unmarshal(output, &answers))
	return answers
}

// A request is one as the receiver sees it.
type request struct {
	Secrets []string          `json:"secrets"` // which the receiver knows
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
	Now     int64             `json:"now"`
}

type try struct {
	name string
	request
	want string
}

const (
	newSecret = "whsec_bmV3IHNlY3JldCBvZiB0d2VudHktZm91ciA/IQ=="
	oldSecret = "the former secret, as plain text"
	sentAt    = 1_800_000_000
)

// triesOf are requests as the sender makes them, and forged ones.
func triesOf(t *testing.T) []try {
	t.Helper()
	const genuine, refused = `1 1 größe 100%/mail.v2-x`, "refused"
	from := func(secrets ...string) request {
		h, body := sent(t, jq.Raw{Name: "größe 100%/mail.v2-x", Document: json.RawMessage(`{"to":  "Adä"}`)}, time.Unix(sentAt, 0), secrets...)
		r := request{Secrets: []string{newSecret}, Headers: map[string]string{}, Body: body, Now: sentAt}
		for name, values := range h {
			r.Headers[name] = values[0]
		}
		return r
	}
	var tries []try
	add := func(name string, r request, want string, changes ...func(*request)) {
		for _, change := range changes {
			change(&r)
		}
		tries = append(tries, try{name, r, want})
	}
	knows := func(secrets ...string) func(*request) {
		return func(r *request) { r.Secrets = append([]string{}, secrets...) }
	}
	after := func(seconds int64) func(*request) { return func(r *request) { r.Now += seconds } }
	with := func(name, value string) func(*request) {
		return func(r *request) {
			headers := map[string]string{name: value}
			for other, value := range r.Headers {
				if other != name {
					headers[other] = value
				}
			}
			r.Headers = headers
		}
	}

	one, two := from(newSecret), from(newSecret, oldSecret)
	signature := one.Headers["Webhook-Signature"]
	add("true", one, genuine)
	add("true, by plain text", from(oldSecret), genuine, knows(oldSecret))
	add("first signature of two", two, genuine)
	add("second signature of two", two, genuine, knows(oldSecret))
	add("second secret of two", one, genuine, knows(oldSecret, newSecret))
	add("a signature of a kind to come before it", one, genuine, with("Webhook-Signature", "v9,abc= "+signature))
	add("five minutes old", one, genuine, after(300))
	add("five minutes ahead", one, genuine, after(-300))

	add("too old", one, refused, after(301))
	add("too far ahead", one, refused, after(-301))
	add("too old with a new time", one, refused, after(3600), with("Webhook-Timestamp", "1800003600"))
	add("wrong secret", one, refused, knows("whsec_b3RoZXI="))
	add("key in place of its base64", one, refused, knows(strings.TrimPrefix(newSecret, "whsec_")))
	add("no secret", one, refused, knows())
	add("longer body", one, refused, func(r *request) { r.Body += " " })
	add("other body", one, refused, func(r *request) { r.Body = strings.Replace(r.Body, "Adä", "Eve", 1) })
	add("no body", one, refused, func(r *request) { r.Body = "" })
	add("other job", one, refused, with("Webhook-Id", "2-1-gr%C3%B6%C3%9Fe%20100%25/mail%2Ev2-x"))
	add("greater token", one, refused, with("Webhook-Id", "1-2-gr%C3%B6%C3%9Fe%20100%25/mail%2Ev2-x"))
	add("other kind", one, refused, with("Webhook-Id", "1-1-transfer"))
	add("no id", one, refused, with("Webhook-Id", ""))
	add("no signature", one, refused, with("Webhook-Signature", ""))
	add("no header", one, refused, func(r *request) { r.Headers = map[string]string{} })
	add("half a signature", one, refused, with("Webhook-Signature", signature[:20]))
	add("signature with more behind it", one, refused, with("Webhook-Signature", signature+"="))
	add("signature without its version", one, refused, with("Webhook-Signature", strings.TrimPrefix(signature, "v1,")))
	add("signature of another version", one, refused, with("Webhook-Signature", "v2"+strings.TrimPrefix(signature, "v1")))
	add("signature that is no ASCII", one, refused, with("Webhook-Signature", "v1,"+strings.Repeat("ö", 44)))
	for _, seconds := range []string{"", "soon", "1.8e9", "-1800000000", "99999999999999999999", "NaN", "١٨٠٠٠٠٠٠٠٠"} {
		add("time "+seconds, one, refused, with("Webhook-Timestamp", seconds))
	}
	for name, seconds := range map[string]string{"unsigned": "", "by nobody's secret": "1800000000"} {
		text := one.Headers["Webhook-Id"] + "." + seconds + "." + one.Body
		add("forged "+name, one, refused, knows("", "whsec_"), with("Webhook-Timestamp", seconds), with("Webhook-Signature", hmacOf("", text)))
	}
	return tries
}

func TestPageForReceiversNamesTheHeadersThatAreSent(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/guides/webhooks.md")
	require.NoError(t, err)
	h, _ := sent(t, mail(`{}`), time.Unix(sentAt, 0), newSecret)
	maps.Copy(h, headersOf(jq.Job{Extras: scheduled("nightly", time.Unix(0, 0))}))
	for _, common := range []string{"Content-Length", "Content-Type", "User-Agent"} {
		delete(h, common)
	}
	listed := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Za-z-]+)` \\|").FindAllSubmatch(page, -1) {
		listed[http.CanonicalHeaderKey(string(row[1]))] = true
	}
	for name := range h {
		assert.True(t, listed[name], "the page does not say %s", name)
	}
	assert.Len(t, listed, len(h), "the page says a header that is not sent: %v", listed)
}
