// Package sidekiq has the code of the guide docs/guides/migrate-from-sidekiq.md.
package sidekiq

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq"
	"github.com/seed-ed332417/jq/internal/httpapi"
	"github.com/seed-ed332417/jq/internal/redistest"
	"github.com/seed-ed332417/jq/jqtest"
)

// WelcomeMail has the arguments of perform. Sidekiq keeps them as an array.
type WelcomeMail struct {
	User   int
	Locale string
}

func (WelcomeMail) Kind() string { return "WelcomeMail" }

// MarshalJSON writes the arguments as Sidekiq does.
func (w WelcomeMail) MarshalJSON() ([]byte, error) { return json.Marshal([]any{w.User, w.Locale}) }

// UnmarshalJSON reads them.
func (w *WelcomeMail) UnmarshalJSON(doc []byte) error {
	return json.Unmarshal(doc, &[]any{&w.User, &w.Locale})
}

// newHandlers returns what replaces the classes of Ruby.
func newHandlers(send func(ctx context.Context, user int, locale string) error) *jq.Handlers {
	var handlers jq.Handlers
	jq.Handle(&handlers, func(ctx context.Context, _ *jq.Run, w WelcomeMail) error {
		return send(ctx, w.User, w.Locale)
	})
	return &handlers
}

// drained runs the jobs of the store, and returns to whom mails were sent.
func drained(t *testing.T, store *jqtest.Store) (sent []WelcomeMail) {
	jqtest.Drain(t, store, newHandlers(func(_ context.Context, user int, locale string) error {
		sent = append(sent, WelcomeMail{user, locale})
		return nil
	}), nil)
	return sent
}

func TestHandlerReadsTheArgumentsOfPerform(t *testing.T) {
	store := jqtest.NewStore(t)
	client := jq.NewClient(store, nil)
	_, err := client.Enqueue(t.Context(), jq.Raw{Name: "WelcomeMail", Document: []byte(`[42,"en"]`)}, nil)
	require.NoError(t, err)
	_, err = client.Enqueue(t.Context(), WelcomeMail{43, "de"}, nil)
	require.NoError(t, err)
	assert.Equal(t, []WelcomeMail{{42, "en"}, {43, "de"}}, drained(t, store))
}

// ruby returns a command that calls the server of the store.
func ruby(t *testing.T, store jq.Store, require string) func(env string, args ...string) *exec.Cmd {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "ruby", "-e", require).CombinedOutput(); err != nil {
		t.Skipf("ruby cannot %s here: %v %s", require, err, out)
	}
	for _, file := range []string{"jq.rb", "move.rb"} { // go test runs again when they change, because it sees them read here
		if _, err := os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	api, err := httpapi.New(store, nil)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(api)
	t.Cleanup(func() {
		assert.NoError(t, api.Close())
		server.Close()
	})
	return func(env string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "ruby", args...)
		cmd.Env = append(os.Environ(), "JQ_SERVER="+server.URL, env)
		return cmd
	}
}

func TestRubyEnqueues(t *testing.T) {
	store := jqtest.NewStore(t)
	command := ruby(t, store, `require "json"`)
	out, err := command("", "-r", "./jq.rb", "-e", `puts JQ.enqueue("WelcomeMail", [42, "en"], delay: "1h", key: "once")`).CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Equal(t, "1\n", string(out))
	jqtest.RequireEnqueued(t, store, jqtest.Want{Payload: WelcomeMail{42, "en"}, Delay: time.Hour})

	out, err = command("", "-r", "./jq.rb", "-e", `JQ.enqueue("WelcomeMail", [42, "en"], delay: "soon")`).CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "jq: jobs.delay must be a duration")
}

func TestMoveTakesWhatWaits(t *testing.T) {
	store := jqtest.NewStore(t)
	command := ruby(t, store, `require "sidekiq/api"`)
	redis := "REDIS_URL=redis://" + redistest.Start(t)
	out, err := command(redis, "-e", `
		require "sidekiq/api"
		150.times { |i| Sidekiq::Client.push("class" => "WelcomeMail", "args" => [i, "en"], "queue" => "mail", "retry" => 3) }
		Sidekiq::Client.push("class" => "WelcomeMail", "args" => [500, "de"], "at" => Time.utc(2031, 2, 3).to_i)
		failed = { "class" => "WelcomeMail", "args" => [600, "fr"], "queue" => "mail", "jid" => "f", "retry" => 5, "retry_count" => 1, "error_message" => "no" }
		Sidekiq.redis { |redis| redis.zadd("retry", Time.utc(2032, 2, 3).to_i, JSON.generate(failed)) }
	`).CombinedOutput()
	require.NoError(t, err, string(out))

	out, err = command(redis, "move.rb").CombinedOutput()
	require.NoError(t, err, string(out))

	jqtest.RequireEnqueued(t, store, jqtest.Want{Times: 152})
	assert.Equal(t, 3, jqtest.RequireEnqueued(t, store, jqtest.Want{Payload: WelcomeMail{149, "en"}, Queue: "mail", Times: 1})[0].MaxRetries)
	scheduled := jqtest.RequireEnqueued(t, store, jqtest.Want{Payload: WelcomeMail{500, "de"}, Queue: "default", Times: 1})[0]
	assert.Equal(t, time.Date(2031, 2, 3, 0, 0, 0, 0, time.UTC), scheduled.RunAt)
	assert.Equal(t, 25, scheduled.MaxRetries)
	retried := jqtest.RequireEnqueued(t, store, jqtest.Want{Payload: WelcomeMail{600, "fr"}, Queue: "mail", Times: 1})[0]
	assert.Equal(t, 3, retried.MaxRetries, "five retries: one is over, and the next one is the first run here")

	out, err = command(redis, "-r", "sidekiq/api", "-e", `s = Sidekiq::Stats.new; puts s.enqueued + s.scheduled_size + s.retry_size`).CombinedOutput()
	require.NoError(t, err, string(out))
	assert.Equal(t, "0\n", string(out), "what is left in Sidekiq")
}
