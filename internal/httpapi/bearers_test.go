package httpapi

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/wire"
)

// listed are the tokens as a server reads them.
func listed(t testing.TB, all ...Token) *Tokens {
	t.Helper()
	var file bytes.Buffer
	for _, one := range all {
		file.Write(one.Line())
	}
	tokens, err := ReadTokens(&file)
	require.NoError(t, err)
	require.Equal(t, len(all), tokens.Len())
	return tokens
}

// bearing makes a token that ends after so long, or never, and what its bearer sends.
func bearing(t testing.TB, name string, role Role, ends time.Duration) (Token, []string) {
	t.Helper()
	secret, token, err := NewToken(Token{Name: name, Role: role})
	require.NoError(t, err)
	if ends != 0 {
		token.Expires = wire.Time{Time: start.Add(ends)}
	}
	return token, []string{"Authorization", "Bearer " + secret}
}

// A token is taken until its moment, and then refused like one that is not known. Only its bearer hears that it has expired.
func TestTokenExpires(t *testing.T) {
	old, oldAuth := bearing(t, "anna", Viewer, time.Hour)
	next, nextAuth := bearing(t, "anna", Viewer, 0)
	w := newWorld(t, Options{Tokens: listed(t, old, next)})
	w.clock.Add(time.Hour - time.Microsecond)
	assert.Equal(t, 200, w.ask("GET", "/v1/stats", "", oldAuth...).status)
	w.clock.Add(time.Microsecond)
	got := w.ask("GET", "/v1/stats", "", oldAuth...)
	f := got.fail(t)
	assert.Equal(t, wire.Fail{
		Type: wire.TokenExpired, Title: "the token has expired", Status: 401, Detail: "it has ended at 2026-01-02T04:04:05Z, get another one",
	}, f)
	assert.Equal(t, `Bearer realm="jq"`, got.header.Get("WWW-Authenticate"))
	assert.Equal(t, wire.Unauthorized, w.ask("GET", "/v1/stats", "", "Authorization", oldAuth[1]+"x").fail(t).Type)
	assert.Equal(t, 200, w.ask("GET", "/v1/stats", "", nextAuth...).status, "another token of the same name is taken")
	w.eventually("the end is noted", func() bool {
		w.clock.Add(time.Second)
		return w.api.bearers.all()[0].life.Err() != nil
	})
	w.clock.Set(start)
	assert.Equal(t, wire.TokenExpired, w.ask("GET", "/v1/stats", "", oldAuth...).fail(t).Type, "a clock that goes back brings it not back")
}

// What lasts longer than a call ends with its token, and what belongs to other tokens goes on.
func TestWhatLastsEndsWithItsToken(t *testing.T) {
	for name, end := range map[string]func(w *world, gone, stays Token) (problem string){
		"Removed": func(w *world, _, stays Token) string {
			w.api.SetTokens(listed(t, stays))
			return wire.Unauthorized
		},
		"OfAnotherRole": func(w *world, gone, stays Token) string {
			gone.Role = Viewer
			w.api.SetTokens(listed(t, stays, gone))
			return wire.Unauthorized
		},
		"Expired": func(w *world, gone, stays Token) string {
			gone.Expires = wire.Time{Time: start.Add(time.Second / 2)} // which does not end it yet
			w.api.SetTokens(listed(t, stays, gone))
			w.clock.Add(time.Second / 2)
			w.api.bearers.endExpired()
			return wire.TokenExpired
		},
		"ExpiredAtOnce": func(w *world, gone, stays Token) string {
			gone.Expires = wire.Time{Time: start}
			w.api.SetTokens(listed(t, stays, gone))
			return wire.TokenExpired
		},
	} {
		t.Run(name, func(t *testing.T) {
			gone, goneAuth := bearing(t, "gone", Operator, 0)
			stays, staysAuth := bearing(t, "stays", Operator, 0)
			w := newWorld(t, Options{Tokens: listed(t, gone, stays)})
			claims := map[string]chan answered{}
			for who, auth := range map[string][]string{"gone": goneAuth, "stays": staysAuth} {
				answer := make(chan answered, 1)
				claims[who] = answer
				go func() {
					got, _ := w.try(w.Context(), "POST", wire.PathClaim, `{"worker":"w","wait":"1m"}`, auth...)
					answer <- got
				}()
			}
			w.asleep(2)
			events, wakeups := w.follow("GET", "/v1/events", "", goneAuth...), w.follow("POST", wire.PathWakeups, "{}", goneAuth...)
			other := w.follow("GET", "/v1/events", "", staysAuth...)

			problem := end(w, gone, stays)
			f := receive(t, claims["gone"], "the claim of the token that is gone ends").fail(t)
			assert.Equal(t, []any{http.StatusUnauthorized, problem}, []any{f.Status, f.Type})
			assert.Empty(t, events.next(), "the stream of events ends")
			assert.Empty(t, wakeups.next(), "and that of wake-ups")
			call[wire.Enqueued](w, 201, "POST", wire.PathJobs, `{"jobs":[{"kind":"k"}]}`, staysAuth...)
			assert.Equal(t, 200, receive(t, claims["stays"], "the other claim gets the job").status)
			event := other.next()
			if strings.Contains(event, WasClaimed) { // events of concurrent calls may come in either order
				event = other.next()
			}
			assert.Contains(t, event, WasEnqueued, "the other stream goes on")
		})
	}
}

// A claim whose token is known still, under a longer time, waits on.
func TestWhatLastsSurvivesAReload(t *testing.T) {
	token, auth := bearing(t, "anna", Worker, time.Minute)
	w := newWorld(t, Options{Tokens: listed(t, token)})
	answer := make(chan answered, 1)
	go func() {
		got, _ := w.try(w.Context(), "POST", wire.PathClaim, `{"worker":"w","wait":"1m"}`, auth...)
		answer <- got
	}()
	w.asleep(1)
	_, producer, err := NewToken(Token{Name: "new", Role: Producer})
	require.NoError(t, err)
	token.Expires = wire.Time{}
	w.api.SetTokens(listed(t, producer, token))
	assert.Len(t, w.api.bearers.shares["anna"].polls, 1)
	w.clock.Add(time.Minute)
	assert.Equal(t, 200, receive(t, answer, "the claim is answered when its time is over").status)
	assert.Equal(t, 403, w.ask("POST", wire.PathJobs, `{"jobs":[{"kind":"k"}]}`, auth...).status, "the token is still that of a worker")
}

// What a name takes up counts for all its tokens, also when they are read anew, or were gone in between.
func TestTokensOfOneNameHaveOneShare(t *testing.T) {
	first, firstAuth := bearing(t, "anna", Operator, 0)
	second, secondAuth := bearing(t, "anna", Operator, 0)
	other, otherAuth := bearing(t, "berta", Operator, 0)
	w := newWorld(t, Options{Tokens: listed(t, first, other), MaxStreams: 2}) // one for each name
	stream := w.follow("GET", "/v1/events", "", firstAuth...)
	full := func(auth []string) bool {
		return w.ask("GET", "/v1/events", "", auth...).status == http.StatusTooManyRequests
	}
	assert.True(t, full(firstAuth))
	w.api.SetTokens(listed(t, second, other, first))
	assert.True(t, full(firstAuth))
	assert.True(t, full(secondAuth))
	w.follow("GET", "/v1/events", "", otherAuth...)
	stream.end()
	w.eventually("the place is free", func() bool { return len(w.api.bearers.shares["anna"].streams) == 0 })
	w.api.SetTokens(listed(t, other))
	w.api.SetTokens(listed(t, other, second))
	w.follow("GET", "/v1/events", "", secondAuth...)
	w.nothingIsTakenUp()
}
