package postgres

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/lib/pq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-ed332417/jq/internal/pgtest"
	"github.com/seed-ed332417/jq/internal/store"
)

// The passwords of the tests have what is special in URLs and in key=value pairs.
const (
	password      = `r1ght'p@ss /wörd\%41`
	wrongPassword = `wr0ng'p@ss /wörd\%41`
)

// both are the ways to write a DSN.
func both(host string, port int, password, database, more string) map[string]string {
	quote := strings.NewReplacer(`\`, `\\`, `'`, `\'`)
	u := url.URL{Scheme: "postgres", User: url.UserPassword("postgres", password), Path: database, RawQuery: more}
	u.Host = net.JoinHostPort(host, fmt.Sprint(port))
	pairs := fmt.Sprintf("host=%s port=%d user=postgres password='%s' dbname=%s %s", host, port, quote.Replace(password), database, more)
	return map[string]string{"URL": u.String(), "key=value": pairs}
}

// silent checks that an error is one line, and that neither it nor what it wraps tells a password, however it was written.
func silent(t *testing.T, err error, about string) {
	t.Helper()
	assert.NotContains(t, err.Error(), "\n", "%s: one line", about)
	for _, text := range texts(err) {
		for _, part := range []string{"r1ght", "wr0ng", "p@ss", "p%40ss", "wörd", "w%C3%B6rd"} {
			assert.NotContains(t, text, part, "%s: no part of a password", about)
		}
	}
}

// texts is what an error says, and what those say that it wraps.
func texts(err error) []string {
	if err == nil {
		return nil
	}
	all := []string{err.Error(), fmt.Sprintf("%+v", err), fmt.Sprintf("%#v", err)}
	switch e := err.(type) { //nolint:errorlint // it is the chain itself that is looked at
	case interface{ Unwrap() error }:
		all = append(all, texts(e.Unwrap())...)
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			all = append(all, texts(one)...)
		}
	}
	return all
}

// TestOpenIsRefused: whatever keeps a store from being opened is said in one line that helps, and never with the password.
func TestOpenIsRefused(t *testing.T) {
	c := ownServer(t, pgtest.Options{Network: true, Password: password})
	there, err := pq.NewConfig(c.TCP)
	require.NoError(t, err)
	host, port := there.Host, int(there.Port)
	away, err := pgtest.FreePort()
	require.NoError(t, err)
	for what, k := range map[string]struct {
		dsns map[string]string
		is   error // nil where a repeat is no use, and nobody has refused anything
		want string
	}{
		"a wrong password":               {both(host, port, wrongPassword, "postgres", "sslmode=disable"), store.ErrDenied, "refuses the user or the password"},
		"no password":                    {both(host, port, "", "postgres", "sslmode=disable"), store.ErrDenied, "refuses the user or the password"},
		"a database that does not exist": {both(host, port, password, "nowhere", "sslmode=disable"), nil, "create it first"},
		"a server that is not there":     {both(host, away, password, "postgres", "sslmode=disable"), store.ErrUnavailable, "start it or mend the DSN"},
		"a server without TLS":           {both(host, port, password, "postgres", ""), nil, "add sslmode=disable"},
		"two servers that are not there": {
			map[string]string{"key=value": fmt.Sprintf("host=%s,%s port=%d password=r1ght", host, host, away)}, store.ErrUnavailable, "start it or mend the DSN",
		},
	} {
		for form, dsn := range k.dsns {
			s, err := Open(t.Context(), dsn, nil)
			assert.Nil(t, s)
			require.Error(t, err, "%s, %s", what, form)
			for _, one := range []error{store.ErrUnavailable, store.ErrInDoubt, store.ErrDenied} {
				assert.Equal(t, one == k.is, errors.Is(err, one), "%s, %s: %v is %v", what, form, err, one) //nolint:errorlint // it is the sentinel itself
			}
			assert.Contains(t, err.Error(), k.want, "%s, %s", what, form)
			silent(t, err, what+", "+form)
		}
	}
	for form, dsn := range both(host, port, password, "postgres", "sslmode=disable") {
		s, err := Open(t.Context(), dsn, nil)
		require.NoError(t, err, "%s: the right password", form)
		assert.NoError(t, s.Close())
	}
}

// TestUnreadableDSN: an error about a DSN does not quote it.
func TestUnreadableDSN(t *testing.T) {
	for _, dsn := range []string{
		"postgres://postgres:" + password + "@host/database",
		"postgres://postgres:r1ght@host:port/database",
		"postgres://postgres:r1ght/p@host/database",
		"host=h user=u password=wr0ng p@ss dbname=d",
		"host=h user=u password='wr0ng' wörd'",
		"r1ght",
	} {
		for what, open := range map[string]func() (*Store, error){
			"DSN":       func() (*Store, error) { return Open(t.Context(), dsn, nil) },
			"ListenDSN": func() (*Store, error) { return Open(t.Context(), "host=/nowhere", &Options{ListenDSN: dsn}) },
		} {
			_, err := open()
			require.Error(t, err, "%s %s", what, dsn)
			assert.Contains(t, err.Error(), "the DSN can not be read: want postgres://", dsn)
			silent(t, err, what)
		}
	}
	_, err := Open(t.Context(), "host=h sslmode=perhaps", nil)
	assert.ErrorContains(t, err, `"perhaps" is not supported`, "what is wrong with one of its values is said")
}

// TestPasswordChangesMeanwhile: an open store says so when the server refuses it, and goes on when it no longer does.
func TestPasswordChangesMeanwhile(t *testing.T) {
	c := ownServer(t, pgtest.Options{Password: password})
	s, admin := openOn(t, c.DSN, "store"), openOn(t, c.DSN, "admin")
	change := func(to string) {
		_, err := admin.db.Exec(`ALTER ROLE postgres PASSWORD ` + pq.QuoteLiteral(to))
		require.NoError(t, err)
	}
	enqueue(t, s, 1)
	change(wrongPassword)
	_, err := admin.db.Exec(`SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'store'`)
	require.NoError(t, err)
	_, err = s.Enqueue(t.Context(), store.EnqueueRequest{Jobs: benchJobs(1)})
	assert.ErrorIs(t, err, store.ErrDenied)
	assert.ErrorContains(t, err, "refuses the user or the password")
	silent(t, err, "Enqueue")
	change(password)
	enqueue(t, s, 1)
	assert.Equal(t, int64(2), countIn(t, s, store.Ready))
}
