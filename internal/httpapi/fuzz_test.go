package httpapi

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/store"
	"github.com/seed-ed332417/jq/internal/store/adapters/memory"
	"github.com/seed-ed332417/jq/internal/wire"
)

// FuzzQuery: whatever is taken of a query can be asked of a store, and whatever is not names a field.
func FuzzQuery(f *testing.F) {
	for _, seed := range []string{"", "queue=a&state=ready&state=dead&limit=7", "cursor=AAAA", "state=", "limit=-1", "queue=%ff", "tag=a;kind=b", "unique_key=%00", "limit_key=%00", "queue=a&queue=b", "%3D=&=", "documents=false"} {
		f.Add(seed)
	}
	s := memory.New(memory.Options{})
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := query(raw)
		if err == nil {
			_, err = s.List(t.Context(), q.filter, q.page)
		}
		if err != nil {
			var invalid *store.InvalidError
			require.ErrorAs(t, err, &invalid)
			require.NotEmpty(t, invalid.Rule)
		}
	})
}

// FuzzWorkerQuery: the same of a query for workers.
func FuzzWorkerQuery(f *testing.F) {
	for _, seed := range []string{"", "name=w&limit=7", "cursor=AAAA", "cursor=" + store.WorkerFilter{}.Cursor("w"), "name=", "limit=-1", "name=%ff", "name=%00", "name=a&name=b", "state=ready"} {
		f.Add(seed)
	}
	s := memory.New(memory.Options{})
	f.Fuzz(func(t *testing.T, raw string) {
		filter, page, err := workerQuery(raw)
		if err == nil {
			_, err = s.Workers(t.Context(), filter, page)
		}
		if err != nil {
			var invalid *store.InvalidError
			require.ErrorAs(t, err, &invalid)
			require.NotEmpty(t, invalid.Rule)
		}
	})
}

// FuzzScheduleQuery: the same of a query for schedules.
func FuzzScheduleQuery(f *testing.F) {
	for _, seed := range []string{"", "name=s&limit=7", "due=true&within=5s", "due=false", "within=1s", "due=true&within=-1s", "due=true&within=x", "cursor=" + store.ScheduleFilter{}.Cursor("s")} {
		f.Add(seed)
	}
	s := memory.New(memory.Options{})
	f.Fuzz(func(t *testing.T, raw string) {
		filter, page, err := scheduleQuery(raw)
		if err == nil {
			_, err = s.Schedules(t.Context(), filter, page)
		}
		if err != nil {
			var invalid *store.InvalidError
			require.ErrorAs(t, err, &invalid)
			require.NotEmpty(t, invalid.Rule)
		}
	})
}

// FuzzID: one number has one text.
func FuzzID(f *testing.F) {
	for _, seed := range []string{"1", "0", "-1", "+1", "01", "1e3", "", "9223372036854775807", "9223372036854775808", "１"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := number("id", text)
		if err == nil {
			require.Equal(t, text, strconv.FormatInt(n, 10))
			return
		}
		require.ErrorIs(t, err, store.ErrInvalid)
	})
}

// FuzzTokens: a file is read as it was written, or refused without a word of it.
func FuzzTokens(f *testing.F) {
	_, token, err := NewToken(Token{Name: "n", Role: Worker})
	require.NoError(f, err)
	for _, seed := range []string{string(token.Line()), "", "\n\n", `{"name":"n"}`, `{"name":"n","role":"worker","sha256":"00"}`, "jq_x", "{}{}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tokens, err := ReadTokens(strings.NewReader(text))
		if err != nil {
			require.ErrorContains(t, err, "jq: tokens, line ")
			return
		}
		require.LessOrEqual(t, tokens.Len(), strings.Count(text, "\n")+1)
		for _, k := range tokens.known {
			require.Subset(t, roles, k.roles)
		}
		b := bearers{clock: clock.NewMock(), room: func() *share { return nil }, shares: map[string]*share{}}
		b.set(tokens)
		require.Nil(t, b.find(""))
	})
}

// FuzzCalls: whatever stands in a body, the answer is one that is documented, and nothing breaks inside.
func FuzzCalls(f *testing.F) {
	var calls []request
	for _, one := range examples() {
		if one.body != "" && one.operation != "wakeups" {
			calls = append(calls, one)
		}
	}
	slices.SortFunc(calls, func(a, b request) int { return strings.Compare(a.operation, b.operation) })
	for i, one := range calls {
		f.Add(uint8(i), one.body)
		f.Add(uint8(i), strings.Replace(one.body, ":", ":null,", 1))
		f.Add(uint8(i), `{"jobs":null,"lease":"1s","worker":"w","action":"delete","filter":{"ids":["1"]}}`)
	}
	s := memory.New(memory.Options{})
	api, err := New(s, &Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Clock: clock.NewMock(), MaxWaiting: 1})
	require.NoError(f, err)
	require.True(f, api.all.polls.enter()) // so that no claim waits
	f.Cleanup(func() { require.NoError(f, api.Close()) })
	f.Fuzz(func(t *testing.T, which uint8, body string) {
		one := calls[int(which)%len(calls)]
		req := httptest.NewRequestWithContext(t.Context(), one.method, one.path, strings.NewReader(body))
		req.Header.Set("Content-Type", wire.JSON)
		told := httptest.NewRecorder()
		api.ServeHTTP(told, req)
		require.Less(t, told.Code, http.StatusInternalServerError, told.Body.String())
		teller := &teller{ResponseWriter: told, status: told.Code}
		teller.text.Write(told.Body.Bytes())
		require.Empty(t, theBook().check(req, nil, teller), "%s", told.Body)
	})
}
