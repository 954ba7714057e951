package daemon_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"snapfs/sandbox"
	"snapfs/sandbox/daemon"
	"snapfs/sandbox/daemon/daemontest"
)

// certificate writes a certificate of this machine and its key, and gives the pool that trusts it.
func certificate(t *testing.T, cert, key string) *x509.CertPool {
	t.Helper()
	pair, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: serial, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, about, about, &pair.PublicKey, pair)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(pair)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "EC PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return pool
}

func TestListenAddresses(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	certificate(t, cert, key)
	for _, tc := range []struct {
		o   daemon.NetworkOptions
		url string // begins with; "" is refused
	}{
		{daemon.NetworkOptions{Addresses: []string{"0"}}, "http://127.0.0.1:"},
		{daemon.NetworkOptions{Addresses: []string{":0"}}, "http://127.0.0.1:"},
		{daemon.NetworkOptions{Addresses: []string{"localhost:0"}}, "http://127.0.0.1:"},
		{daemon.NetworkOptions{Addresses: []string{"0.0.0.0:0"}}, ""},
		{daemon.NetworkOptions{Addresses: []string{"[::]:0"}}, ""},
		{daemon.NetworkOptions{Addresses: []string{"example.com:80"}}, ""},
		{daemon.NetworkOptions{Addresses: []string{"127.0.0.1"}}, ""},
		{daemon.NetworkOptions{Addresses: []string{"99999"}}, ""},
		{daemon.NetworkOptions{Addresses: []string{"http"}}, ""},
		{daemon.NetworkOptions{Addresses: []string{""}}, ""},
		{daemon.NetworkOptions{Addresses: []string{"0.0.0.0:0"}, Insecure: true}, "http://0.0.0.0:"},
		{daemon.NetworkOptions{Addresses: []string{"0.0.0.0:0"}, Cert: cert, Key: key}, "https://0.0.0.0:"},
		{daemon.NetworkOptions{Addresses: []string{"0"}, Cert: cert}, ""},
		{daemon.NetworkOptions{Addresses: []string{"0"}, Cert: key, Key: cert}, ""},
	} {
		n, err := daemon.ListenNetwork(t.Context(), tc.o)
		if tc.url == "" {
			if !errors.Is(err, sandbox.ErrInvalid) {
				t.Errorf("%+v: %v", tc.o, err)
			}
			continue
		}
		if err != nil || !strings.HasPrefix(n.URLs()[0], tc.url) {
			t.Errorf("%+v: %v, %v", tc.o, n.URLs(), err)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // nothing was accepted
	if _, err := daemon.ListenNetwork(t.Context(), daemon.NetworkOptions{Addresses: []string{l.Addr().String()}}); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("an address that is taken: %v", err)
	}
}

// TestTLS: what is served is encrypted with the certificate as it was when it was read last, and one that cannot be read
// leaves the one before.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	first := certificate(t, cert, key)
	n, err := daemon.ListenNetwork(t.Context(), daemon.NetworkOptions{Addresses: []string{"0"}, Cert: cert, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	d := daemontest.Start(t, func(o *daemon.Options) {
		if err := o.Network.Close(); err != nil {
			t.Error(err)
		}
		o.Network = n
	})
	secret := d.Token(t, "a").Secret
	ask := func(trust *x509.CertPool) error {
		c := http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: trust, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true,
		}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, n.URLs()[0]+"/v1/info", strings.NewReader("{}"))
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+secret)
		resp, err := c.Do(req)
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			t.Errorf("status %d", resp.StatusCode)
		}
		return resp.Body.Close()
	}
	if err := ask(first); err != nil {
		t.Errorf("the first certificate: %v", err)
	}
	second := certificate(t, cert, key)
	if err := errors.Join(ask(first), n.Reload(), ask(second)); err != nil {
		t.Errorf("another certificate: %v", err)
	}
	if ask(first) == nil {
		t.Error("the first certificate is still used")
	}
	if err := os.WriteFile(cert, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.Reload(); !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("a damaged certificate: %v", err)
	}
	if err := ask(second); err != nil {
		t.Errorf("beside a damaged certificate: %v", err)
	}
}

// TestListenersAreHandedOn: who connects while one program follows another waits, and is answered by the other.
func TestListenersAreHandedOn(t *testing.T) {
	n, err := daemon.ListenNetwork(t.Context(), daemon.NetworkOptions{Addresses: []string{"0"}})
	if err != nil {
		t.Fatal(err)
	}
	url := n.URLs()[0]
	files, err := n.HandOver()
	if err = errors.Join(err, n.Close()); err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatalf("nobody waits: %v", err)
	}
	defer c.Close() //nolint:errcheck // it is read to its end
	next, err := daemon.ListenNetwork(t.Context(), daemon.NetworkOptions{Addresses: []string{"0"}, Handed: files})
	if err != nil || next.URLs()[0] != url {
		t.Fatalf("%v, %v; want %s", next.URLs(), err, url)
	}
	daemontest.Start(t, func(o *daemon.Options) {
		if err := o.Network.Close(); err != nil {
			t.Error(err)
		}
		o.Network = next
	})
	if _, err := c.Write([]byte("GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 12)
	if n, err := c.Read(answer); err != nil || string(answer[:n]) != "HTTP/1.0 200" {
		t.Errorf("%q, %v", answer, err)
	}
}
