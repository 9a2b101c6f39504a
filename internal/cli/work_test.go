package cli

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/jqtest"
)

// --grace applies to programs instead of their default, and the server waits longer than that.
func TestGraceReachesProgramsAndServer(t *testing.T) {
	w := &workFlags{exec: "true", lease: time.Minute, timeout: time.Minute, drain: time.Second, grace: 40 * time.Second, snooze: time.Second}
	o, err := w.options(0)
	require.NoError(t, err)
	assert.Equal(t, 45*time.Second, o.Abandon.Timeout)
	_, err = w.handler(&app{}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)

	w.grace = -time.Second // options would refuse this value; only the programs see it
	_, err = w.handler(&app{}, slog.New(slog.DiscardHandler))
	assert.ErrorContains(t, err, "Grace")
}

// The error about an option that cannot be names the flag, and no option of the library that a flag sets lacks its flag.
func TestOptionErrorsNameTheFlag(t *testing.T) {
	tooLong := 20 * 365 * 24 * time.Hour
	var gather time.Duration
	for flag, change := range map[string]func(w *workFlags){
		"--name":         func(w *workFlags) { w.name = strings.Repeat("x", 256) },
		"--queue":        func(w *workFlags) { w.queues = []string{strings.Repeat("x", 256) + "=1"} },
		"--lease":        func(w *workFlags) { w.lease = tooLong },
		"--timeout":      func(w *workFlags) { w.timeout = tooLong },
		"--drain":        func(w *workFlags) { w.drain = tooLong },
		"--grace":        func(w *workFlags) { w.grace = tooLong },
		"--retain-every": func(w *workFlags) { w.retain = tooLong },
		"--gather":       func(*workFlags) { gather = tooLong },
	} {
		w := &workFlags{lease: time.Minute, timeout: time.Minute, drain: time.Second, grace: time.Second, snooze: time.Second}
		gather = 0
		change(w)
		options, err := w.options(gather)
		require.NoError(t, err, flag)
		var handlers jq.Handlers
		handlers.Func("k", func(context.Context, *jq.Run) error { return nil })
		_, err = jq.NewServer(jqtest.NewStore(t), &handlers, options)
		require.Error(t, err, flag)
		assert.Regexp(t, "^"+flag+" must ", misuseOfOption(err).Error())
	}
}

// A worker behind a server deletes no jobs, because the server may keep jobs for longer than the defaults.
func TestWorkLeavesDeletionToTheServer(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"":                                     time.Minute,
		"--server http://s":                    -time.Minute,
		"--server http://s --retain-every 1h":  time.Hour,
		"--server http://s --retain-every -1s": -time.Second,
		"--retain-every 2h":                    2 * time.Hour,
	} {
		a := &app{std: quiet(nil, nil), flagged: map[string]bool{}, sources: map[string]string{}}
		cmd := commandBelow(a.root(), "work")
		require.NoError(t, cmd.ParseFlags(strings.Fields(text)))
		require.NoError(t, a.applyDefaults(cmd))
		every, err := cmd.Flags().GetDuration("retain-every")
		require.NoError(t, err)
		assert.Equal(t, want, a.fitRetention(cmd, every), text)
	}
}

// During a rotation, requests carry signatures of both secrets, the new one first.
func TestWorkSignsWithTheNewSecretAndTheOldOne(t *testing.T) {
	var signatures, seconds []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		signatures = append(signatures, r.Header.Get("webhook-signature"))
		seconds = append(seconds, r.Header.Get("webhook-timestamp"))
	}))
	defer server.Close()
	send := func(env map[string]string) string {
		std := quiet(nil, nil)
		std.env = func(name string) (string, bool) { value, isSet := env[name]; return value, isSet }
		handle, err := (&workFlags{webhook: server.URL, allow: []string{"127.0.0.0/8"}}).handler(&app{std: std}, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		require.NoError(t, handle(t.Context(), &jq.Run{Job: jq.Job{ID: 7, Token: 3, Kind: "mail", Payload: []byte(`{}`)}}))
		return signatures[len(signatures)-1]
	}
	assert.Empty(t, send(map[string]string{webhookSecret: "", oldWebhookSecret: ""}))
	both := strings.Fields(send(map[string]string{webhookSecret: "whsec_bmV3", oldWebhookSecret: "old"}))
	require.Len(t, both, 2)
	for i, key := range []string{"new", "old"} {
		mac := hmac.New(sha256.New, []byte(key))
		_, _ = io.WriteString(mac, "7-3-mail."+seconds[1]+".{}")
		assert.Equal(t, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)), both[i])
	}
}

// With --gather, claims and writes of results wait for others. Without it, they do not.
func TestWorkGathers(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 0, "--gather 100ms": 100 * time.Millisecond} {
		a := &app{std: quiet(nil, nil), flagged: map[string]bool{}, sources: map[string]string{}}
		cmd := commandBelow(a.root(), "work")
		require.NoError(t, cmd.ParseFlags(strings.Fields(text)))
		w := &workFlags{lease: time.Minute, timeout: time.Minute, drain: time.Second, grace: time.Second, snooze: time.Second}
		options, err := w.options(a.gather)
		require.NoError(t, err)
		assert.Equal(t, []time.Duration{want, want}, []time.Duration{options.Claim.Interval, options.Commit.Interval}, text)
	}
}
