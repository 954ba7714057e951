package e2e

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// certificate writes a certificate for 127.0.0.1 and its key, as cert.pem and key.pem.
func (h *home) certificate(serial int64) *x509.Certificate {
	h.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(h.t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "snapfs of a test"},
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	require.NoError(h.t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(h.t, err)
	h.write("cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	h.write("key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	c, err = x509.ParseCertificate(der)
	require.NoError(h.t, err)
	return c
}

// over asks a daemon that shows a certificate, and gives status, body and the certificate's number.
func over(t *testing.T, trust *x509.Certificate, url, secret, body string) (status int, text string, serial int64) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(trust)
	c := &http.Client{Timeout: soon, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true,
	}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+secret)
	r, err := c.Do(req)
	require.NoError(t, err)
	all, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	return r.StatusCode, string(all), r.TLS.PeerCertificates[0].SerialNumber.Int64()
}

// TestTokensOverTLS follows docs/SERVICE.md: a daemon with a certificate, tokens that are made, listed and revoked, and a
// certificate that is replaced while the daemon serves.
func TestTokensOverTLS(t *testing.T) {
	h := newHome(t)
	first := h.certificate(1)
	h.ok("create", "mine") // the home
	h.ok("stop")
	h.fails(2, "tokens would travel in the clear", "serve", "--listen", "0.0.0.0:0")
	start(t, h, h.tmp, snapfs, "serve", "--log", h.path("serve.log"), "--listen", "127.0.0.1:0",
		"--tls-cert", h.path("cert.pem"), "--tls-key", h.path("key.pem"))
	var url string
	require.Eventually(t, func() bool {
		var info struct{ Listen []string }
		r := h.run("--json", "status")
		if r.code != 0 || json.Unmarshal([]byte(r.out), &info) != nil || len(info.Listen) != 1 {
			return false
		}
		url = info.Listen[0]
		return true
	}, time.Minute, 10*time.Millisecond, "status shows the address")
	require.True(t, strings.HasPrefix(url, "https://127.0.0.1:"), url)

	type token struct {
		ID, Session, Secret, Description string
		Scopes                           []string
	}
	all := decode[token](h, "token", "create", "--session", "build", "--ttl", "30d", "--description", "the build farm")
	reads := h.ok("token", "create", "--session", "build", "--scopes", "read", "--quiet")
	require.True(t, strings.HasPrefix(reads, "snapfs_"), reads)
	status, text, serial := over(t, first, url+"/v1/create", all.Secret, `{"name":"web"}`)
	require.Equal(t, 200, status, text)
	require.EqualValues(t, 1, serial)
	require.Contains(t, h.ok("list", "--session", "build"), "web")
	status, text, _ = over(t, first, url+"/v1/create", reads, `{"name":"web2"}`)
	require.Equal(t, 403, status, text)
	status, text, _ = over(t, first, url+"/v1/workspaces", reads, `{}`)
	require.Equal(t, 200, status, text)
	require.Contains(t, text, `"web"`)
	require.NotContains(t, text, `"mine"`, "what another session has")
	unencrypted := "http" + strings.TrimPrefix(url, "https") + "/v1/info"
	plain, err := http.Post(unencrypted, "", strings.NewReader("{}")) //nolint:noctx // it is answered at once
	require.NoError(t, err)
	require.NoError(t, plain.Body.Close())
	require.Equal(t, 400, plain.StatusCode, "without encryption")

	list := h.ok("token", "list", "--session", "build")
	require.Contains(t, list, all.ID[:8])
	require.Contains(t, list, "the build farm")
	require.NotContains(t, list, all.Secret)
	require.NotContains(t, h.ok("token", "list"), all.ID[:8], "of another session")
	h.ok("token", "revoke", all.ID, "--session", "build")
	status, text, _ = over(t, first, url+"/v1/info", all.Secret, `{}`)
	require.Equal(t, 401, status, text)
	h.fails(3, "00000000", "token", "revoke", "00000000", "--session", "build")

	h.write("cert.pem", "damaged")
	h.fails(2, "certificate", "reload")
	_, _, serial = over(t, first, url+"/v1/info", reads, `{}`)
	require.EqualValues(t, 1, serial, "the certificate before goes on to count")
	second := h.certificate(2)
	h.ok("reload")
	status, text, serial = over(t, second, url+"/v1/info", reads, `{}`)
	require.Equal(t, 200, status, text)
	require.EqualValues(t, 2, serial)
	h.ok("stop")
}

// TestMCPByHand speaks to 'snapfs mcp' as one does without a library: lines of JSON-RPC go in, and nothing else comes out.
func TestMCPByHand(t *testing.T) {
	h := newHome(t)
	at := h.makeDir("app")
	h.ok("up", "app", at)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	cmd := exec.CommandContext(ctx, snapfs, "mcp")
	cmd.Dir, cmd.Env = at, append(os.Environ(), h.env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	for _, ask := range []string{
		`"id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},` +
			`"clientInfo":{"name":"hand","version":"1"}}`,
		`"method":"notifications/initialized"`,
		`"id":2,"method":"tools/list"`,
		`"id":3,"method":"tools/call","params":{"name":"workspace_write_file",` +
			`"arguments":{"path":"by-hand","content":"text\n"}}`,
		`"id":4,"method":"no/such"`,
	} {
		_, err = io.WriteString(in, `{"jsonrpc":"2.0",`+ask+"}\n")
		require.NoError(t, err)
	}
	answers := map[int]string{}
	lines := bufio.NewReader(out)
	for len(answers) < 4 {
		line, err := lines.ReadString('\n')
		require.NoError(t, err, line)
		var a struct {
			JSONRPC string
			ID      int
			Result  json.RawMessage
			Error   *struct{ Code int }
		}
		require.NoError(t, json.Unmarshal([]byte(line), &a), line)
		require.Equal(t, "2.0", a.JSONRPC, line)
		require.Equal(t, a.ID == 4, a.Error != nil, line)
		answers[a.ID] = string(a.Result)
	}
	require.NoError(t, in.Close())
	rest, err := io.ReadAll(lines)
	require.NoError(t, err)
	require.Empty(t, string(rest))
	require.NoError(t, cmd.Wait())
	require.Equal(t, "text\n", h.read("app/by-hand"))
	require.Contains(t, answers[1], `"protocolVersion":"2025-06-18"`)
	require.Contains(t, answers[2], "workspace_snapshot")
	require.Contains(t, answers[3], "by-hand")
	require.Contains(t, answers, 4)
}
