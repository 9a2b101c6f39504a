//go:build unix

package cli

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The mode and owner of a file of secrets decide whether it is accepted.
func TestModesAndOwnersOfSecrets(t *testing.T) {
	const self, somebody = 1000, 1001
	for _, one := range []struct {
		mode  fs.FileMode
		owner int
		says  string
	}{
		{0o600, self, ""}, {0o400, self, ""}, {0o700, self, ""}, {0o600, 0, ""},
		{0o440, 0, ""}, {0o640, self, ""}, // as Kubernetes mounts secrets for a group
		{0o644, self, "chmod 600 FILE"}, {0o604, 0, "chmod 600 FILE"}, {0o602, self, "chmod 600 FILE"}, {0o601, self, "chmod 600 FILE"},
		{0o620, self, "chmod 600 FILE"}, {0o660, 0, "chmod 600 FILE"}, {0o777, self, "mode 0777"},
		{0o600, somebody, "FILE belongs to user 1001, who can change it: run chown 1000 FILE and chmod 600 FILE"},
	} {
		err := secretFrom("FILE", one.mode, one.owner, self)
		if one.says == "" {
			assert.NoError(t, err, "%v of %d", one.mode, one.owner)
		} else {
			assert.ErrorContains(t, err, one.says, "%v of %d", one.mode, one.owner)
		}
	}
	require.Error(t, secretFrom("FILE", 0o600, self, 0), "root does not trust users")
}

// If other users can read the file, the previous values stay. Correcting its mode reloads the file.
func TestCorrectedModeReloadsTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	tokenCommand(t, "new", "anna", "--role", "worker", "--file", file)
	flags := serveFlags{tokens: file}
	s, err := flags.secrets()
	require.NoError(t, err)
	l := newLookout(t, s)
	require.NoError(t, os.Chmod(file, 0o644))
	l.check(false)
	l.check(false)
	assert.Contains(t, l.said(), "chmod 600 "+file)
	require.NoError(t, os.Chmod(file, 0o600))
	l.check(false)
	l.check(false)
	assert.Contains(t, l.said(), "tokens=1")
}

// A server with --client-ca requires a client certificate. A change of the file applies to resumed connections too.
func TestClientCertificates(t *testing.T) {
	w := newSandbox(t)
	ours, theirs := newAuthority(t), newAuthority(t)
	at := func(name string) string { return filepath.Join(w.folder, name) }
	ours.pair(at("cert.pem"), at("key.pem"), "server", x509.ExtKeyUsageServerAuth)
	ours.pair(at("ours.pem"), at("ours.key"), "ours", x509.ExtKeyUsageClientAuth)
	theirs.pair(at("theirs.pem"), at("theirs.key"), "theirs", x509.ExtKeyUsageClientAuth)
	require.NoError(t, os.WriteFile(at("ca.pem"), ours.pem, 0o600))
	require.NoError(t, os.WriteFile(at("clients.pem"), ours.pem, 0o600))
	server := w.start("serving on ", "serve", "--store", "sqlite:jobs.db", "--addr", "127.0.0.1:0",
		"--tls-cert", "cert.pem", "--tls-key", "key.pem", "--client-ca", "clients.pem")
	url, _, _ := strings.Cut(server.ready, ";")
	stats := func(args ...string) (string, error) {
		said, err := w.command(append([]string{"stats", "--server", url}, args...)...).CombinedOutput()
		return string(said), err
	}
	said, err := stats()
	require.Error(t, err)
	assert.Contains(t, said, "certificate is not trusted")
	said, err = stats("--ca", "ca.pem")
	require.Error(t, err, said)
	said, err = stats("--ca", "ca.pem", "--client-cert", "ours.pem", "--client-key", "ours.key")
	require.NoError(t, err, said)
	said, err = stats("--ca", "ca.pem", "--client-cert", "cert.pem", "--client-key", "key.pem")
	require.Error(t, err, "a server certificate is not a client certificate: %s", said)

	w.env = append(w.env, "JQ_CA=ca.pem", "JQ_CLIENT_CERT=theirs.pem", "JQ_CLIENT_KEY=theirs.key")
	said, err = stats()
	require.Error(t, err, said)
	resumed := tls.NewLRUClientSessionCache(10)
	shown, err := tls.LoadX509KeyPair(at("ours.pem"), at("ours.key"))
	require.NoError(t, err)
	secure := &tls.Config{RootCAs: ours.pool(), Certificates: []tls.Certificate{shown}, ClientSessionCache: resumed}
	host := strings.TrimPrefix(url, "https://")
	greet := func() error { // with TLS 1.3, a client sees only at its first read that it was refused
		conn, err := tls.Dial("tcp", host, secure)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(conn, "GET /healthz HTTP/1.1\r\nHost: jq\r\nConnection: close\r\n\r\n")
		if err == nil {
			_, err = io.ReadAll(conn)
		}
		_ = conn.Close()
		return err
	}
	require.NoError(t, greet())
	require.NoError(t, os.WriteFile(at("clients.pem"), theirs.pem, 0o600))
	require.NoError(t, server.Process.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool { said, err = stats(); return err == nil }, time.Minute, 10*time.Millisecond, "the file is loaded again")
	require.Error(t, greet())
	w.end(server)
}
