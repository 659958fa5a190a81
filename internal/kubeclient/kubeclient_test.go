package kubeclient

import (
	"encoding/pem"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func TestEitherFlagForTheCertificateIsEnough(t *testing.T) {
	t.Parallel()
	text := certificate(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	testenv.Must(t, os.WriteFile(file, []byte(text), 0o600))
	for _, tt := range []struct {
		access Access
		file   string
		text   string
	}{
		{Access{Host: "h:6443", Token: "t", CertPath: file, Cert: "/dev/null"}, file, ""},
		{Access{Host: "h:6443", Token: "t", Cert: strings.ReplaceAll(text, "\n", `\n`)}, "", text},
		{Access{Host: "h:6443", Token: "t", CertPath: "/dev/null", Cert: text}, "", text},
		{Access{Host: "h:6443", Token: "t"}, "", ""},
	} {
		config, namespace, err := tt.access.Config()
		testenv.Must(t, err)
		if config.CAFile != tt.file || string(config.CAData) != tt.text || config.Host != "https://h:6443" || namespace != "default" {
			t.Errorf("%+v: file %q, text %q, host %s, namespace %s", tt.access, config.CAFile, config.CAData, config.Host, namespace)
		}
		if _, err := rest.HTTPClientFor(&rest.Config{Host: config.Host, BearerToken: config.BearerToken}); err != nil {
			t.Error(err)
		}
	}
}

// certificate returns a certificate in PEM format.
func certificate(t *testing.T) string {
	t.Helper()
	web := httptest.NewTLSServer(nil)
	defer web.Close()
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw}))
}

func TestCertificateThatIsNoneIsNamed(t *testing.T) {
	t.Parallel()
	for want, access := range map[string]Access{
		"access to the cluster: read the certificate: open /nonexistent/ca.crt: no such file or directory": {Host: "h", CertPath: "/nonexistent/ca.crt"},
		"access to the cluster: certificate file /etc/passwd has no certificate in PEM format":             {Host: "h", CertPath: "/etc/passwd"},
		"access to the cluster: the text of the certificate has no certificate in PEM format":              {Host: "h", Cert: "ca.crt"},
	} {
		if _, _, err := access.Config(); !errors.Is(err, ErrAccess) || err.Error() != want {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestFieldsThatExcludeEachOtherAreRefused(t *testing.T) {
	t.Parallel()
	for want, access := range map[string]Access{
		"needs the address":           {Token: "t"},
		"excludes a kubeconfig":       {Host: "h", Kubeconfig: "/x"},
		"excludes a file with":        {Host: "h", Token: "t", TokenFile: "/x"},
		"stat /nonexistent/config: n": {Kubeconfig: "/nonexistent/config"},
	} {
		if _, _, err := access.Config(); !errors.Is(err, ErrAccess) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", access, err, want)
		}
	}
}

func TestKubeconfigNamesClusterAndNamespace(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config")
	testenv.Must(t, os.WriteFile(file, []byte(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://10.0.0.1"}}]
users: [{name: u, user: {token: secret}}]
contexts: [{name: x, context: {cluster: c, user: u, namespace: lab}}]
current-context: x
`), 0o600))
	config, namespace, err := Access{Kubeconfig: file}.Config()
	testenv.Must(t, err)
	if config.Host != "https://10.0.0.1" || config.BearerToken != "secret" || namespace != "lab" {
		t.Errorf("%s, %s, %s", config.Host, config.BearerToken, namespace)
	}
	if _, namespace, err = (Access{Kubeconfig: file, Namespace: "other"}).Config(); err != nil || namespace != "other" {
		t.Errorf("namespace %s, %v", namespace, err)
	}
}

func TestLoginsThatOthersCanReadAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	token, config := filepath.Join(dir, "token"), filepath.Join(dir, "config")
	write := func(path, text string) {
		t.Helper()
		testenv.Must(t, errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, 0o644)))
	}
	kubeconfig := func(user string) string {
		return "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: \"https://h\"}}]\n" +
			"contexts: [{name: c, context: {cluster: c, user: u}}]\nusers: [{name: u, user: {" + user + "}}]\n"
	}
	write(token, "secret\n")
	for user, refused := range map[string]bool{"token: secret": true, "username: ann, password: secret": true, "client-key-data: c2VjcmV0, client-certificate-data: eA==": true, "tokenFile: " + token: false, "": false} {
		write(config, kubeconfig(user))
		_, _, err := Access{Kubeconfig: config}.Config()
		if want := "access to the cluster: the cluster's login file " + config + " may be read by others: chmod 600 it"; refused != (err != nil && err.Error() == want) {
			t.Errorf("%s: %v", user, err)
		}
	}
	_, _, err := Access{Host: "h", TokenFile: token}.Config()
	if want := "access to the cluster: the token file " + token + " may be read by others: chmod 600 it"; err == nil || err.Error() != want {
		t.Error(err)
	}
}
