package etcdtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Files are certificates and keys for TLS between clients and members.
type Files struct {
	CA        string // of the authority that has signed all others
	Cert, Key string // of a client
	server    [2]string
}

// certificates writes new files into a folder.
func certificates(folder string) (*Files, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	f := &Files{CA: filepath.Join(folder, "ca.pem")}
	f.Cert, f.Key = filepath.Join(folder, "client.pem"), filepath.Join(folder, "client-key.pem")
	f.server = [2]string{filepath.Join(folder, "server.pem"), filepath.Join(folder, "server-key.pem")}
	der, err := x509.CreateCertificate(rand.Reader, authority, authority, &key.PublicKey, key)
	return f, errors.Join(err, write(f.CA, "CERTIFICATE", der),
		issue(authority, key, "client", f.Cert, f.Key), issue(authority, key, "server", f.server[0], f.server[1]))
}

// issue writes a certificate for 127.0.0.1 that the authority has signed, and its key.
func issue(authority *x509.Certificate, signer *ecdsa.PrivateKey, name, cert, private string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		NotBefore:   authority.NotBefore, NotAfter: authority.NotAfter,
	}, authority, &key.PublicKey, signer)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalECPrivateKey(key)
	return errors.Join(err, write(cert, "CERTIFICATE", der), write(private, "EC PRIVATE KEY", secret))
}

func write(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// config is that of a client.
func (f *Files) config() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(f.CA)
	roots := x509.NewCertPool()
	if err == nil && !roots.AppendCertsFromPEM(text) {
		err = errors.New(f.CA + " has no certificate")
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{pair}}, err
}

// flags are those of a member that takes clients only by TLS, and with a certificate.
func (f *Files) flags() []string {
	return []string{"--cert-file=" + f.server[0], "--key-file=" + f.server[1], "--client-cert-auth", "--trusted-ca-file=" + f.CA}
}
