// SPDX-License-Identifier: Apache-2.0

package front

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// TestWebConfig: TLS and a password, as exporters of Prometheus have them. Nothing is to be had
// without the password.
func TestWebConfig(t *testing.T) {
	w := newWorld(t, nil)
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	config := filepath.Join(dir, "web.yaml")
	for name, b := range map[string][]byte{
		"c.pem": certificate, "k.pem": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}),
		"web.yaml": fmt.Appendf(nil, "tls_server_config: {cert_file: c.pem, key_file: k.pem}\nbasic_auth_users: {who: %q}\n", hash),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Options{Listen: address, WebConfig: config, Client: w.client, Log: slog.New(slog.DiscardHandler)})
	}()
	defer func() { stop(); <-done }()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	ask := func(path, user, password string) int {
		t.Helper()
		req, err := http.NewRequest(http.MethodGet, "https://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if user != "" {
			req.SetBasicAuth(user, password)
		}
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			resp, err := client.Do(req)
			if err == nil {
				resp.Body.Close()
				return resp.StatusCode
			}
			if time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
	for _, path := range []string{"/", "/metrics", "/api/v1/services", "/api/v1/events", "/healthz"} {
		if got := ask(path, "", ""); got != http.StatusUnauthorized {
			t.Errorf("%s without a password: %d", path, got)
		}
		if got := ask(path, "who", "wrong"); got != http.StatusUnauthorized {
			t.Errorf("%s with a wrong password: %d", path, got)
		}
	}
	if got := ask("/metrics", "who", "secret"); got != http.StatusOK {
		t.Errorf("with the password: %d", got)
	}
	if resp, err := http.Get("http://" + address + "/metrics"); err == nil {
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			t.Error("it answers without TLS")
		}
	}
}
