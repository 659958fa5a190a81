package testenv

import (
	"bufio"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

//go:embed oidc.mjs
var oidcScript string

// OIDCClient is the client of an OIDCProvider, and its accounts: the claims by the subject.
type OIDCClient struct {
	Client   string                    `json:"client"`
	Secret   string                    `json:"secret"`
	Redirect string                    `json:"redirect"`
	Accounts map[string]map[string]any `json:"accounts"`
	// Conform makes the provider tell the claims at its userinfo endpoint alone.
	Conform bool `json:"conform"`
	Port    int  `json:"port"`
}

// OIDCProvider is a certified provider of OpenID Connect in a process of its own (scripts/oidc-provider).
type OIDCProvider struct {
	Issuer string

	tb     testing.TB
	dir    string
	client OIDCClient
	stop   func()
}

// StartOIDC starts a provider. source is the way from the test's directory to that of the project. The provider ends with
// the test.
func StartOIDC(tb testing.TB, source string, c OIDCClient) *OIDCProvider {
	tb.Helper()
	need(tb, oidc, nil)
	_, err := exec.LookPath("node")
	need(tb, oidc, err)
	lock, err := os.ReadFile(filepath.Join(source, "scripts/lib/oidc/package-lock.json"))
	Must(tb, err)
	sum := sha256.Sum256(lock)
	dir := shared
	if os.Geteuid() != 0 {
		cache, err := os.UserCacheDir()
		need(tb, oidc, err)
		dir = filepath.Join(cache, "cl-slurm")
	}
	dir = filepath.Join(dir, "oidc", hex.EncodeToString(sum[:6]))
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err != nil {
		need(tb, oidc, fmt.Errorf("%w: run scripts/oidc-provider up", err))
	}
	p := &OIDCProvider{tb: tb, dir: dir, client: c}
	p.Start()
	return p
}

// Start starts the provider again at the same address, with new keys. It knows no session of before.
func (p *OIDCProvider) Start() {
	p.tb.Helper()
	script := filepath.Join(p.tb.TempDir(), "oidc.mjs")
	Must(p.tb, os.WriteFile(script, []byte(oidcScript), 0o600))
	cmd := exec.Command("node", script)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "NODE_PATH=" + filepath.Join(p.dir, "node_modules"), "HOME=" + p.tb.TempDir()}
	var said strings.Builder
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	Must(p.tb, err)
	out, err := cmd.StdoutPipe()
	Must(p.tb, err)
	Must(p.tb, cmd.Start())
	p.stop = sync.OnceFunc(func() {
		_ = in.Close() // it ends with that
		_ = cmd.Wait()
	})
	p.tb.Cleanup(p.stop)
	line, err := json.Marshal(p.client) //nolint:gosec // the secret is made up, and the provider has to know it
	Must(p.tb, err)
	_, err = in.Write(append(line, '\n'))
	Must(p.tb, err)
	issuer, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		p.tb.Fatalf("the provider does not start: %v: %s", err, &said)
	}
	p.Issuer = strings.TrimSpace(issuer)
	u, err := url.Parse(p.Issuer)
	Must(p.tb, err)
	p.client.Port, err = strconv.Atoi(u.Port())
	Must(p.tb, err)
}

// Stop ends the provider.
func (p *OIDCProvider) Stop() { p.stop() }
