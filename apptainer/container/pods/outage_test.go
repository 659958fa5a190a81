package pods_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/cl-slurm/cl-slurm/internal/kubeclient"
	"github.com/cl-slurm/cl-slurm/internal/kubetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// outage stands between a caller and the API server.
type outage struct {
	server *httptest.Server

	mu   sync.Mutex
	down bool // no request is answered
	lose bool // the answer of the next creation of a pod is lost after its effect
	made int  // creations of pods
}

func (o *outage) set(change func(o *outage)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change(o)
}

// behind returns a site whose caller reaches the API server through an outage.
func behind(t *testing.T) (*site, *outage) {
	t.Helper()
	s := newSite(t)
	config, _, err := kubeclient.Access{}.Config()
	testenv.Must(t, err)
	transport, err := rest.TransportFor(config)
	testenv.Must(t, err)
	target, err := url.Parse(config.Host)
	testenv.Must(t, err)
	o := &outage{}
	forward := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	o.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		creation := r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/pods")
		o.mu.Lock()
		down, lose := o.down, o.lose && creation
		if creation {
			o.made, o.lose = o.made+1, false
		}
		o.mu.Unlock()
		if down {
			panic(http.ErrAbortHandler)
		}
		if lose {
			forward.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		forward.ServeHTTP(w, r)
	}))
	o.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	o.server.Start()
	t.Cleanup(func() {
		o.server.CloseClientConnections()
		o.server.Close()
	})
	s.runtime.Access = kubeclient.Access{Host: o.server.URL, Token: config.BearerToken, Namespace: s.namespace}
	return s, o
}

func TestRunOutlivesAnAPIServerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s, o := behind(t)
	r := s.start("echo begun; until test -e /work/go; do sleep 0.1; done; exit 6", shares(s.dir))
	r.awaitBegun()
	o.set(func(o *outage) { o.down = true })
	o.server.CloseClientConnections() // the watch breaks off
	touch(t, s.dir, "go")
	testenv.Await(t, "the pod has ended", func() bool {
		return kubetest.Kubectl(t, "-n", s.namespace, "get", "pods", "-o", "jsonpath={.items[*].status.phase}") == "Failed"
	})
	o.set(func(o *outage) { o.down = false })
	if exit, err := r.wait(); err != nil || exit.Code != 6 {
		t.Errorf("%+v, %v", exit, err)
	}
}

func TestLostAnswerMakesOnePod(t *testing.T) {
	t.Parallel()
	s, o := behind(t)
	o.set(func(o *outage) { o.lose = true })
	r := s.start("echo once", nil)
	if exit, err := r.wait(); err != nil || exit.Code != 0 || r.output() != "once\n" {
		t.Errorf("%+v, %v; output %q", exit, err, r.output())
	}
	o.set(func(o *outage) {
		if o.made != 2 {
			t.Errorf("%d creations", o.made)
		}
	})
}
