package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// writePair writes a self-signed certificate with this serial number, and its key.
func writePair(t *testing.T, dir string, serial int64) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{key: {Type: "PRIVATE KEY", Bytes: secret}, cert: {Type: "CERTIFICATE", Bytes: der}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	changed := time.Now().Add(time.Duration(serial) * time.Second) // the disk's times may be coarse
	if err := os.Chtimes(cert, changed, changed); err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// get returns the body of an answer, and the serial number of the server's certificate.
func get(t *testing.T, url string) (body string, serial int64) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(answer.Body)
	if err := answer.Body.Close(); err != nil {
		t.Fatal(err)
	}
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, answer.Status, err)
	}
	if answer.TLS != nil {
		serial = answer.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	return string(data), serial
}

func TestServerIsWatchedAndEncrypts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := writePair(t, dir, 1)
	probe, err := net.Listen("tcp", "127.0.0.1:0") // to find a free port
	if err != nil {
		t.Fatal(err)
	}
	metrics := probe.Addr().String()
	if err := probe.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	_, log, ended := start(ctx, "", "run", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--metrics-listen", metrics,
		"--tls-cert", cert, "--tls-key", key, "--log-format", "json")
	var serving struct{ Address string }
	testenv.Await(t, "the server serves", func() bool {
		first, _, complete := strings.Cut(log.String(), "\n")
		if complete && json.Unmarshal([]byte(first), &serving) != nil {
			t.Fatalf("not JSON: %s", first)
		}
		return serving.Address != ""
	}, log.String)
	if body, serial := get(t, serving.Address+"/healthz"); body != "ok\n" || serial != 1 || !strings.HasPrefix(serving.Address, "https://") {
		t.Errorf("%s: %q, certificate %d", serving.Address, body, serial)
	}
	if body, _ := get(t, "http://"+metrics+"/metrics"); !strings.Contains(body, "\ncodalab_workers 0\n") {
		t.Error(body)
	}
	writePair(t, dir, 2)
	if _, serial := get(t, serving.Address+"/healthz"); serial != 2 {
		t.Errorf("certificate %d after another was written", serial)
	}
	if err := os.WriteFile(cert, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, serial := get(t, serving.Address+"/healthz"); serial != 2 {
		t.Errorf("certificate %d after it was broken", serial)
	}
	stop()
	if got := ended(); got != 0 || !strings.Contains(log.String(), `"msg":"stopped"`) || !strings.Contains(log.String(), "read the certificate") {
		t.Errorf("exit %d, %s", got, log)
	}
}

func TestBadWebFlags(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	for args, says := range map[string]string{
		"--tls-cert a":               "--tls-cert and --tls-key need each other",
		"--tls-cert /no --tls-key /": "--tls-cert: open /no",
		"--log-format xml":           `invalid argument "xml" for "--log-format" flag: want text or json`,
	} {
		_, stderr, code := start(t.Context(), "", append([]string{"run", "--data", data}, strings.Fields(args)...)...)
		if got := code(); got != program.ExitUsage || !strings.Contains(stderr.String(), says) {
			t.Errorf("%s: exit %d, %s", args, got, stderr)
		}
	}
}
