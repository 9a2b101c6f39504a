package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Without tokens, a server that other machines can reach accepts only the host names it was given.
func TestHostNamesOfServer(t *testing.T) {
	given := []string{"jq.example"}
	for _, c := range []struct {
		addr     string
		tokens   bool
		hosts    []string
		want     []string
		loopback bool
	}{
		{"127.0.0.1:7070", false, nil, nil, true}, {"localhost:7070", false, given, given, true}, {"[::1]:7070", true, nil, nil, false},
		{"127.0.0.1:7070", true, given, given, true}, {"unix:/run/jq.sock", false, nil, nil, true}, {"unix:/run/jq.sock", true, nil, nil, false},
		{":7070", false, nil, nil, true}, {":7070", false, given, given, false}, {"jq.internal:7070", false, nil, []string{"jq.internal"}, true},
		{"192.0.2.7:7070", false, nil, []string{"192.0.2.7"}, true}, {":7070", true, nil, nil, false}, {":7070", true, given, given, false},
	} {
		s := serveFlags{addr: c.addr, hosts: c.hosts, insecure: true}
		hosts, loopback := s.names(c.tokens)
		assert.Equal(t, []any{c.want, c.loopback}, []any{hosts, loopback}, "%s, tokens %v, --host %v", c.addr, c.tokens, c.hosts)
	}
	s := serveFlags{addr: ":7070", hosts: []string{"jq.example:7070"}, insecure: true}
	assert.ErrorContains(t, s.check(false, false), `--host "jq.example:7070": want the name of a host or an address, without a port`)
}
