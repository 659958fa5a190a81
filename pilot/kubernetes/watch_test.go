package kubernetes_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/kubeclient"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/kubernetes"
	"github.com/cl-slurm/cl-slurm/pilot/pilottest"
)

func TestWatchedPodsCostNoRequest(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.watched(s.backend("lab", ""))
	name := start(t, b)
	awaitPhase(t, b, name, pilot.Active)
	testenv.Must(t, b.Tidy(t.Context(), pilottest.NewToken))
	before := s.proxy.count("")
	for range 100 {
		if p := show(t, b, name); p.Phase != pilot.Active {
			t.Fatalf("the pilot is %+v", p)
		}
		testenv.Must(t, b.Tidy(t.Context(), pilottest.NewToken))
	}
	if n := s.proxy.count("") - before; n != 0 {
		t.Errorf("%d requests", n)
	}
}

func TestBrokenWatchIsAnErrorAndNoOldAnswer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.watched(s.backend("lab", ""))
	name := start(t, b)
	awaitPhase(t, b, name, pilot.Active)
	s.proxy.setDown(true)
	var err error
	testenv.Await(t, "the outage is an error", func() bool {
		_, err = b.Pilots(t.Context())
		return err != nil
	})
	if failed, ok := err.(interface{ Transient() bool }); !ok || !failed.Transient() {
		t.Errorf("the error is %v", err)
	}
	s.api(http.MethodDelete, s.path("pods/"+name)+"?gracePeriodSeconds=0", nil)
	s.proxy.setDown(false)
	testenv.Await(t, "the watch goes on", func() bool {
		pilots, err := b.Pilots(t.Context())
		return err == nil && len(pilots) == 0
	})
}

// Servers before Kubernetes 1.34 may refuse a watch that begins with all pods (WatchList).
func TestOlderServerIsListedFirstAsItIsNow(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.backend("lab", "")
	name := start(t, b)
	s.proxy.answers("WATCH pods", http.StatusUnprocessableEntity)
	s.watched(b)
	if p := show(t, b, name); p.Name != name {
		t.Errorf("the pilot is %+v", p)
	}
	if lists, old := s.proxy.count("GET pods"), s.proxy.count("OLD pods"); lists < 1 || old > 0 || s.proxy.count("WATCH pods") < 2 {
		t.Errorf("%d lists, and %d that may be old", lists, old)
	}
}

// The server ends each watch after some minutes, and forgets old places: 410 Gone.
func TestWatchGoesOnAfterItsEndAndAfter410Gone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.watched(s.backend("lab", ""))
	first := start(t, b)
	awaitPhase(t, b, first, pilot.Active)
	watches := s.proxy.count("WATCH pods")
	s.proxy.answers("WATCH pods", http.StatusGone)
	s.proxy.cutStreams()
	testenv.Await(t, "the answer is given", func() bool { return s.proxy.count("WATCH pods") > watches })
	s.api(http.MethodDelete, s.path("pods/"+first)+"?gracePeriodSeconds=0", nil)
	second := start(t, b)
	awaitPhase(t, b, second, pilot.Active)
	testenv.Await(t, "the first pilot is gone", func() bool { return show(t, b, first).Name == "" })
}

// A clock that is wrong makes a certificate seem to be of another time.
func TestCertificateOfAnotherTimePointsToTheClock(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	expired, authority := certificate(t, time.Now().Add(-48*time.Hour), time.Now().Add(-24*time.Hour))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{expired}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	_, err := connectTo(t, kubeclient.Access{Host: server.URL, Cert: authority})
	if err == nil || !strings.Contains(err.Error(), "certificate has expired or is not yet valid: ") || !strings.HasSuffix(err.Error(), ": check the clock of this machine, then the cluster's certificate") {
		t.Errorf("%v", err)
	}
}

// certificate returns a certificate of 127.0.0.1 that is valid in a time, and its text.
func certificate(t *testing.T, from, to time.Time) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testenv.Must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: to, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	data, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	testenv.Must(t, err)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: data})
	return tls.Certificate{Certificate: [][]byte{data}, PrivateKey: key}, string(text)
}

func TestWrongAccessIsOneSentence(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	direct := s.access()
	direct.Host, direct.CertPath = s.cluster.config.Host, s.cluster.config.CAFile
	_, err := connectTo(t, direct)
	testenv.Must(t, err)
	for name, test := range map[string]struct {
		change func()
		words  string
	}{
		"token":  {func() { direct.Token = "wrong" }, "list the workers: Unauthorized: the cluster https://10.79.1.1 does not accept the login: the token may have expired"},
		"cert":   {func() { direct.CertPath = "" }, "certificate signed by unknown authority: give the certificate of the cluster's authority with --cert-path or in the kubeconfig"},
		"host":   {func() { direct.Host = "https://no-such-host.invalid" }, "no such host: check the address"},
		"plain":  {func() { direct.Host = strings.Replace(direct.Host, "https", "http", 1) + ":443" }, ": the address has to begin with https://"},
		"login":  {func() { direct.Token = "" }, ": no token was given: name a file that has one with --auth-token-file"},
		"scheme": {func() { direct.Host = "https://" + strings.TrimPrefix(s.proxy.address, "http://") }, "server gave HTTP response to HTTPS client: the address needs https:// or http:// as the cluster has it"},
	} {
		before := direct
		test.change()
		for _, watch := range []bool{false, true} {
			c, err := kubernetes.Connect(direct)
			testenv.Must(t, err)
			b := s.backend("lab", "")
			b.Cluster = c
			if watch {
				s.watched(b)
			}
			_, err = b.Pilots(t.Context())
			failed, ok := err.(interface{ Transient() bool })
			if !ok || failed.Transient() || !strings.HasSuffix(err.Error(), test.words) {
				t.Errorf("%s, watch %v: %v\nwant %s", name, watch, err, test.words)
			}
		}
		direct = before
	}
	direct.Host = "127.0.0.1:1"
	if _, err := connectTo(t, direct); err == nil || !strings.Contains(err.Error(), "the cluster https://127.0.0.1:1 does not answer: dial tcp 127.0.0.1:1: connect: connection refused") {
		t.Errorf("%v", err)
	}
}
