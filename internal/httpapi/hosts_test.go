package httpapi

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// called is the status of a request that calls the server by the name.
func (w *world) called(host string) int {
	w.Helper()
	req, err := http.NewRequestWithContext(w.Context(), "GET", w.url+"/v1/jobs", nil)
	require.NoError(w, err)
	req.Host = host
	resp, err := w.client.Do(req)
	require.NoError(w, err)
	require.NoError(w, resp.Body.Close())
	return resp.StatusCode
}

// TestNamesOfOtherSites: a name that somebody has let point here does not open a server, unless any name is fine.
func TestNamesOfOtherSites(t *testing.T) {
	local := []string{"localhost", "LOCALHOST:7070", "localhost.", "127.0.0.1", "127.0.0.1:7070", "[::1]", "[::1]:7070", "192.0.2.1:7070"}
	own := []string{"jq.example", "JQ.example.:7070", "192.0.2.7", "192.0.2.7:7070", "[2001:db8::1]:7070"}
	foreign := []string{
		"evil.example", "evil.example:7070", "localhost.evil.example", "127.0.0.1.evil.example:80", "jq.example.evil.example", "xjq.example", "a.jq.example", "jq.example:70:70",
	}
	hosts := []string{"jq.example", "192.0.2.7", "2001:db8::1"}
	for _, c := range []struct {
		options             Options
		local, own, foreign int
	}{
		{Options{}, 200, 200, 200},
		{Options{Loopback: true}, 200, 0, 421},
		{Options{Hosts: hosts}, 421, 200, 421},
		{Options{Hosts: hosts, Loopback: true}, 200, 200, 421},
	} {
		w := newWorld(t, c.options)
		for status, names := range map[*int][]string{&c.local: local, &c.own: own, &c.foreign: foreign} {
			for _, name := range names {
				if *status != 0 {
					assert.Equal(t, *status, w.called(name), "%s with %v, loopback %v", name, c.options.Hosts, c.options.Loopback)
				}
			}
		}
	}
}

func TestHostsThatAreNone(t *testing.T) {
	for _, host := range []string{"", "jq.example:7070", "http://jq.example", "jq example", "*.example", "[::1]", "a\nb"} {
		_, err := New(nil, &Options{Hosts: []string{host}})
		assert.ErrorContains(t, err, "want the name of a host or an address", host)
	}
}
