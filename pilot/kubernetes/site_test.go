package kubernetes_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cl-slurm/cl-slurm/internal/kubeclient"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/pilot"
	"github.com/cl-slurm/cl-slurm/pilot/kubernetes"
	"github.com/cl-slurm/cl-slurm/pilot/pilottest"
)

// worker is the program in the pods of tests.
var worker = testenv.Program{Package: "./testdata/worker"}

func TestMain(m *testing.M) {
	testenv.Parallel(6)
	code := m.Run()
	worker.Remove()
	if err := removeMadeUpNodes(); err != nil {
		log.Print("remove the made-up nodes: ", err)
	}
	os.Exit(code)
}

// clusterOnce is the cluster of scripts/kubernetes, as one test process knows it.
var clusterOnce = sync.OnceValues(loadCluster)

// realCluster is the cluster and the image that it has.
type realCluster struct {
	config *rest.Config
	script string
}

func loadCluster() (*realCluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	return &realCluster{config: config, script: os.Getenv("CLTEST_KUBERNETES")}, err
}

// site is a namespace of the real cluster, which the backends of a test reach through a proxy.
type site struct {
	t         *testing.T
	cluster   *realCluster
	namespace string
	image     string
	proxy     *proxy
	// large is set if the namespace has so many pods that the test does not remove them one by one.
	large bool
}

// enforce is the label of a namespace's Pod Security Standard.
const enforce = "pod-security.kubernetes.io/enforce"

// newSite makes a namespace, which goes with the test.
func newSite(t *testing.T) *site {
	t.Helper()
	testenv.Kubernetes(t)
	c, err := clusterOnce()
	testenv.Must(t, err)
	sum := sha256.Sum256([]byte(t.Name() + time.Now().String()))
	s := &site{t: t, cluster: c, namespace: "test-" + hex.EncodeToString(sum[:6]), image: image(t, c)}
	s.proxy = newProxy(t, c.config)
	labels := map[string]string{enforce: "baseline"}
	s.api(http.MethodPost, "/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": s.namespace, "labels": labels}})
	t.Cleanup(func() { s.removeNamespace() })
	testenv.Await(t, "the default service account is there", func() bool {
		code, _ := s.try(http.MethodGet, s.path("serviceaccounts/default"), nil)
		return code == http.StatusOK
	})
	return s
}

// removeNamespace removes the namespace and all in it. It does not wait.
func (s *site) removeNamespace() {
	var pods corev1.PodList
	if !s.large {
		pods = s.pods()
	}
	for _, pod := range pods.Items {
		if len(pod.Finalizers) > 0 {
			s.patch("pods/"+pod.Name, `{"metadata":{"finalizers":null}}`)
		}
		s.try(http.MethodDelete, s.path("pods/"+pod.Name)+"?gracePeriodSeconds=0", nil)
	}
	s.try(http.MethodDelete, "/api/v1/namespaces/"+s.namespace, nil)
}

// path returns the path of a resource in the namespace.
func (s *site) path(resource string) string {
	return "/api/v1/namespaces/" + s.namespace + "/" + resource
}

// try sends a request as the cluster's administrator, not through the proxy.
func (s *site) try(method, path string, body any) (int, []byte) {
	return s.send(method, path, "application/json", body)
}

func (s *site) send(method, path, kind string, body any) (int, []byte) {
	data, err := json.Marshal(body)
	if raw, ok := body.(string); ok {
		data = []byte(raw)
	}
	client, clientErr := rest.HTTPClientFor(s.cluster.config)
	if err != nil || clientErr != nil {
		return 0, nil
	}
	request, err := http.NewRequestWithContext(context.Background(), method, s.cluster.config.Host+path, bytes.NewReader(data))
	if err != nil {
		return 0, nil
	}
	request.Header.Set("Content-Type", kind)
	response, err := client.Do(request)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer func() { _ = response.Body.Close() }()
	text, _ := io.ReadAll(response.Body)
	return response.StatusCode, text
}

// api is try, and ends the test unless the answer is good.
func (s *site) api(method, path string, body any) []byte {
	s.t.Helper()
	code, text := s.try(method, path, body)
	if code < 200 || code > 299 {
		s.t.Fatalf("%s %s: %d %s", method, path, code, text)
	}
	return text
}

// patch changes a resource of the namespace.
func (s *site) patch(resource, patch string) {
	s.t.Helper()
	s.patchAt(s.path(resource), patch)
}

func (s *site) patchAt(path, patch string) {
	s.t.Helper()
	if code, text := s.send(http.MethodPatch, path, "application/merge-patch+json", patch); code != http.StatusOK {
		s.t.Fatalf("patch %s: %d %s", path, code, text)
	}
}

// pods returns all pods of the namespace.
func (s *site) pods() corev1.PodList {
	var list corev1.PodList
	_, text := s.try(http.MethodGet, s.path("pods"), nil)
	_ = json.Unmarshal(text, &list) // an empty list then
	return list
}

// access is the administrator's, through the proxy.
func (s *site) access() kubeclient.Access {
	return kubeclient.Access{Host: s.proxy.address, Token: s.cluster.config.BearerToken, Namespace: s.namespace}
}

// backend returns a backend whose workers have a behaviour.
func (s *site) backend(manager, behaviour string) *kubernetes.Backend {
	s.t.Helper()
	c, err := kubernetes.Connect(s.access())
	testenv.Must(s.t, err)
	b := &kubernetes.Backend{
		Cluster: c, Manager: manager, Now: time.Now, User: "ann", Password: "shibboleth",
		Settings: kubernetes.Settings{
			Image: s.image, CPUs: 1, MemoryMB: 32, WorkDirPrefix: "/tmp",
			NodeSelector: map[string]string{"kubernetes.io/hostname": "n2"}, // n1 has no user namespaces for pods
			Worker:       pilot.Worker{Executable: "/cl-worker", Server: "http://none"},
		},
	}
	if behaviour != "" {
		b.Settings.Worker.Arguments = []string{"--tag", behaviour}
	}
	return b
}

// watched lets a backend watch until the test ends.
func (s *site) watched(b *kubernetes.Backend) *kubernetes.Backend {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		testenv.Must(s.t, <-done)
	})
	testenv.Await(s.t, "the backend watches", b.Watches)
	return b
}

// finish lets the worker of a pod end.
func (s *site) finish(pod string) {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), "kubectl", "-n", s.namespace, "exec", pod, "--", "/cl-worker", "finish")
	// The worker's end may kill the second process of its container.
	if out, err := cmd.CombinedOutput(); err != nil && !strings.Contains(string(out), "exit code 137") {
		s.t.Fatalf("kubectl exec: %v: %s", err, out)
	}
}

// imageOnce holds the name of the image that the nodes have.
var imageOnce struct {
	sync.Mutex
	name string
}

// image returns the name of an image with the worker as /cl-worker, which all nodes have.
func image(t *testing.T, c *realCluster) string {
	t.Helper()
	imageOnce.Lock()
	defer imageOnce.Unlock()
	if imageOnce.name == "" {
		imageOnce.name = loadImage(t, c)
	}
	return imageOnce.name
}

// loadImage gives the nodes that image.
func loadImage(t *testing.T, c *realCluster) string {
	t.Helper()
	program, err := os.ReadFile(worker.Path(t))
	testenv.Must(t, err)
	sum := sha256.Sum256(program)
	tag, err := name.NewTag("cl-slurm.example/stand-in:" + hex.EncodeToString(sum[:8]))
	testenv.Must(t, err)
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	testenv.Must(t, w.WriteHeader(&tar.Header{Name: "cl-worker", Mode: 0o755, Size: int64(len(program))}))
	_, err = w.Write(program)
	testenv.Must(t, err)
	testenv.Must(t, w.Close())
	content, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil })
	testenv.Must(t, err)
	img, err := mutate.AppendLayers(empty.Image, content)
	testenv.Must(t, err)
	file, err := img.ConfigFile()
	testenv.Must(t, err)
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", "amd64"
	img, err = mutate.ConfigFile(img, file)
	testenv.Must(t, err)
	archive := filepath.Join(t.TempDir(), "worker.tar")
	testenv.Must(t, tarball.WriteToFile(archive, tag, img))
	if out, err := exec.CommandContext(t.Context(), c.script, "load", archive).CombinedOutput(); err != nil {
		t.Fatalf("load the image: %v: %s", err, out)
	}
	return tag.Name()
}

// proxy stands between backends and the API server.
type proxy struct {
	address string

	mu     sync.Mutex
	lose   int              // answers of creations of pods to lose
	answer map[string][]int // statuses to answer instead of the server, by method and resource
	seen   []string         // method and resource of each request
	down   bool             // no connection is served
	left   int              // changes to answer before one loses its answer and down is set; negative for no bound
	cut    chan struct{}    // closed to cut the open streams
}

func newProxy(t *testing.T, config *rest.Config) *proxy {
	t.Helper()
	p := &proxy{answer: map[string][]int{}, cut: make(chan struct{}), left: -1}
	target, err := url.Parse(config.Host)
	testenv.Must(t, err)
	authority, err := os.ReadFile(config.CAFile)
	testenv.Must(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			query := r.Out.URL.Query()
			if query.Get("limit") != "" && query.Get("fieldSelector") == "" {
				query.Set("limit", fmt.Sprint(pilottest.PageSize))
				r.Out.URL.RawQuery = query.Encode()
			}
		},
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true},
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.serve(forward, w, r) }))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	p.address = server.URL
	return p
}

// key returns the method and the resource of a request, such as "POST pods" and "WATCH pods". "OLD pods" is a list that may be
// old.
func key(r *http.Request) string {
	_, rest, _ := strings.Cut(r.URL.Path, "/namespaces/")
	parts := strings.Split(rest, "/")
	method := r.Method
	if r.URL.Query().Get("watch") == "true" || r.URL.Query().Get("watch") == "1" {
		method = "WATCH"
	} else if r.URL.Query().Get("resourceVersion") == "0" {
		method = "OLD"
	}
	text := method
	if len(parts) > 1 {
		text += " " + parts[1]
	}
	if len(parts) > 3 {
		text += "/" + parts[3]
	}
	return text
}

func (p *proxy) serve(forward http.Handler, w http.ResponseWriter, r *http.Request) {
	k := key(r)
	if k == "POST pods" {
		requestLittle(r)
	}
	p.mu.Lock()
	p.seen = append(p.seen, k)
	status, lose, down, cut := 0, false, p.down, p.cut
	if waiting := p.answer[k]; len(waiting) > 0 {
		status, p.answer[k] = waiting[0], waiting[1:]
	} else if k == "POST pods" && p.lose > 0 {
		lose, p.lose = true, p.lose-1
	}
	if p.left >= 0 && r.Method != http.MethodGet && !down {
		p.left--
		if p.left < 0 {
			lose, p.down = true, true
		}
	}
	p.mu.Unlock()
	switch {
	case down:
		panic(http.ErrAbortHandler)
	case status != 0:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(status), Reason: reasonOf(status), Message: "the proxy of the test answers so"})
	case lose:
		forward.ServeHTTP(&discard{header: http.Header{}}, r)
		panic(http.ErrAbortHandler)
	default:
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		go func() {
			select {
			case <-cut:
				cancel()
			case <-ctx.Done():
			}
		}()
		forward.ServeHTTP(w, r.WithContext(ctx))
		if r.Context().Err() == nil && ctx.Err() != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

func reasonOf(status int) metav1.StatusReason {
	switch status {
	case http.StatusGone:
		return metav1.StatusReasonExpired
	case http.StatusForbidden:
		return metav1.StatusReasonForbidden
	case http.StatusTooManyRequests:
		return metav1.StatusReasonTooManyRequests
	}
	return ""
}

// requestLittle makes a pod request little of a CPU, so that many tests have room on the nodes.
func requestLittle(r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	body = bytes.Replace(body, []byte(`"cpu":"500m"`), []byte(`"cpu":"5m"`), 1)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Length", fmt.Sprint(len(body)))
}

// cutStreams cuts the open requests.
func (p *proxy) cutStreams() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.cut)
	p.cut = make(chan struct{})
}

// setDown ends or begins to serve connections.
func (p *proxy) setDown(down bool) {
	p.mu.Lock()
	p.down = down
	p.mu.Unlock()
	if down {
		p.cutStreams()
	}
}

// count returns the number of requests of a kind so far; of all with an empty one.
func (p *proxy) count(k string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, s := range p.seen {
		if k == "" || s == k {
			n++
		}
	}
	return n
}

func (p *proxy) answers(k string, statuses ...int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer[k] = append(p.answer[k], statuses...)
}

// discard is a response that nobody gets.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}
