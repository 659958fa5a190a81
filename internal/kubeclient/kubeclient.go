// Package kubeclient connects to the API server of a Kubernetes cluster, with a client for the objects of core/v1
// alone: pods, events, secrets. A clientset registers all groups of the API, which makes a program 12 MB larger.
//
// A program finds its cluster as kubectl does, or by the flags of CodaLab's own programs.
package kubeclient

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cl-slurm/cl-slurm/internal/strictmodes"
)

// Access names a cluster and a login there. The zero value means the cluster of kubectl: the current context of
// KUBECONFIG or ~/.kube/config, else the service account of the pod in which this program runs.
type Access struct {
	// Host is the address of the API server. If it is set, the four fields below count, and no kubeconfig does.
	Host string `json:"host,omitempty"`
	// Token is a bearer token, TokenFile a file with one, which is read again when it changes.
	Token     string `json:"token,omitempty"`
	TokenFile string `json:"token_file,omitempty"`
	// CertPath is a file with the certificate of the cluster's authority, Cert its text, in which \n may stand for
	// the end of a line. One of the two is enough, and "/dev/null" means none. Without both the system's
	// authorities count.
	CertPath string `json:"cert_path,omitempty"`
	Cert     string `json:"cert,omitempty"`
	// Kubeconfig is a file, Context one of its contexts.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	Context    string `json:"context,omitempty"`
	// Namespace is the namespace of the pods; empty means that of the context or of this program's pod, else "default".
	Namespace string `json:"namespace,omitempty"`
	// UserAgent names this program to the API server.
	UserAgent string `json:"user_agent,omitempty"`
}

// ErrAccess means that the fields of an Access do not fit together, or that a file which they name cannot be used.
var ErrAccess = errors.New("access to the cluster")

// ErrNoCluster is the ErrAccess of a program that finds no cluster: nothing names one, and it runs in no pod.
var ErrNoCluster = fmt.Errorf("%w: no cluster is named by KUBECONFIG or ~/.kube/config, and this program runs in no pod with a service account", ErrAccess)

// none is CodaLab's word for no certificate (codalab/worker_manager/kubernetes_worker_manager.py: __init__).
const none = "/dev/null"

func given(cert string) bool { return cert != "" && cert != none }

// check fails for fields that exclude each other, or that need Host.
func (a Access) check() error {
	direct := a.Token != "" || a.TokenFile != "" || given(a.CertPath) || given(a.Cert)
	switch {
	case a.Host == "" && direct:
		return fmt.Errorf("%w: a token or a certificate needs the address of the cluster", ErrAccess)
	case a.Host != "" && (a.Kubeconfig != "" || a.Context != ""):
		return fmt.Errorf("%w: the address of the cluster excludes a kubeconfig and a context", ErrAccess)
	case a.Token != "" && a.TokenFile != "":
		return fmt.Errorf("%w: a token excludes a file with a token", ErrAccess)
	}
	if a.TokenFile != "" {
		if _, err := strictmodes.ReadOwnSecret("token", a.TokenFile); err != nil {
			return fmt.Errorf("%w: %w", ErrAccess, err)
		}
	}
	return a.checkCertificate()
}

// checkCertificate fails without a certificate in Cert or in the file of CertPath. The errors of client-go name neither.
func (a Access) checkCertificate() error {
	text, place := []byte(a.certText()), "the text of the certificate"
	if given(a.CertPath) {
		place = "certificate file " + a.CertPath
		var err error
		if text, err = os.ReadFile(a.CertPath); err != nil {
			return fmt.Errorf("%w: read the certificate: %w", ErrAccess, err)
		}
	} else if !given(a.Cert) {
		return nil
	}
	if !x509.NewCertPool().AppendCertsFromPEM(text) {
		return fmt.Errorf("%w: %s has no certificate in PEM format", ErrAccess, place)
	}
	return nil
}

func (a Access) certText() string { return strings.ReplaceAll(a.Cert, `\n`, "\n") }

// Config returns the configuration of a client, and the namespace. It sends nothing.
func (a Access) Config() (config *rest.Config, namespace string, err error) {
	if err := a.check(); err != nil {
		return nil, "", err
	}
	if a.Host != "" {
		config, namespace = a.direct(), cmp.Or(a.Namespace, metav1.NamespaceDefault)
	} else if config, namespace, err = a.ofKubectl(); err != nil {
		return nil, "", err
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, "", fmt.Errorf("register core/v1: %w", err)
	}
	config.APIPath, config.GroupVersion = "/api", &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.UserAgent = a.UserAgent
	config.WarningHandler = rest.NoWarnings{} // the server's remarks about deprecated fields are not for users
	return config, namespace, nil
}

// ofKubectl returns the configuration that kubectl would use.
func (a Access) ofKubectl() (*rest.Config, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.Kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: a.Context}
	overrides.Context.Namespace = a.Namespace
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err := loaded.ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, "", ErrNoCluster
	case err != nil:
		return nil, "", fmt.Errorf("%w: %w", ErrAccess, err)
	}
	if err := checkLogin(config, rules.GetLoadingPrecedence()); err != nil {
		return nil, "", err
	}
	namespace, _, err := loaded.Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("%w: find the namespace: %w", ErrAccess, err)
	}
	return config, namespace, nil
}

// checkLogin refuses a login that others can read in one of these kubeconfigs. A login may also be elsewhere: in the files
// that a kubeconfig names, or with the program that it starts.
func checkLogin(config *rest.Config, kubeconfigs []string) error {
	inline := config.BearerToken != "" && config.BearerTokenFile == ""
	if !inline && config.Password == "" && len(config.KeyData) == 0 {
		return nil
	}
	for _, path := range kubeconfigs {
		if err := strictmodes.CheckSecretFile("cluster's login", path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %w", ErrAccess, err)
		}
	}
	return nil
}

// direct returns the configuration of CodaLab's flags.
func (a Access) direct() *rest.Config {
	config := &rest.Config{Host: a.Host, BearerToken: a.Token, BearerTokenFile: a.TokenFile}
	if !strings.Contains(config.Host, "://") {
		config.Host = "https://" + config.Host
	}
	if given(a.CertPath) {
		config.CAFile = a.CertPath
	} else if given(a.Cert) {
		config.CAData = []byte(a.certText())
	}
	return config
}
