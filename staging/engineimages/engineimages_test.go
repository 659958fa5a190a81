package engineimages_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/staging"
	"github.com/cl-slurm/cl-slurm/staging/engineimages"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

var _ staging.Images = (*engineimages.Images)(nil)

// docker is Docker's engine.
var docker testenv.Docker

func TestMain(m *testing.M) {
	code := m.Run()
	if err := docker.Remove(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

var must = testenv.Must

// realEngine is Docker with a registry.
type realEngine struct {
	*engineimages.Images

	t        *testing.T
	registry *imagetest.Registry
	clock    atomic.Int64 // in seconds
}

// begin returns Images of Docker, with an empty state.
func begin(t *testing.T) *realEngine {
	t.Helper()
	host, client := docker.Host(t)
	e := &realEngine{t: t, registry: imagetest.Start(t)}
	e.Images = &engineimages.Images{
		Engine: engineimages.Engine{Program: client, Env: []string{"DOCKER_HOST=" + host, "HOME=" + t.TempDir()}},
		Source: imagetest.Source(), AtOnce: 2, RecordsPath: filepath.Join(t.TempDir(), "images.json"),
		Now: func() time.Time { return time.Unix(e.clock.Add(1), 0) },
	}
	return e
}

func (e *realEngine) stage(name, holder string) (string, error) {
	in, err := e.Stage(e.t.Context(), codalab.RunBundle{UUID: "0x1", OwnerID: "ann"}, name, "", cache.Holder(holder), &transfer.Item{Name: "image " + name, Image: true})
	if err == nil && (in.SIF != "" || in.SIFFile != nil) {
		e.t.Errorf("it has a SIF: %+v", in)
	}
	return in.PinnedReference, err
}

func (e *realEngine) mustStage(name, holder string) string {
	e.t.Helper()
	got, err := e.stage(name, holder)
	must(e.t, err)
	return got
}

// docker calls the engine's client.
func (e *realEngine) docker(args ...string) (string, error) {
	cmd := exec.Command(e.Engine.Program, args...)
	cmd.Env = e.Engine.Env
	output, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(output)), err
}

func (e *realEngine) has(name string) bool {
	_, err := e.docker("image", "inspect", name)
	return err == nil
}

// push gives the registry an image with this content, and returns its name with the digest.
func (e *realEngine) push(repo, content string) (name, pinned string) {
	e.t.Helper()
	img := imagetest.Tiny(e.t, content)
	name = e.registry.Push(e.t, repo, img)
	digest, err := img.Digest()
	must(e.t, err)
	repository, _, _ := strings.Cut(name[len(e.registry.Host):], ":")
	e.t.Cleanup(func() { _, _ = e.docker("rmi", "--force", e.registry.Host+repository+"@"+digest.String()) })
	return name, e.registry.Host + repository + "@" + digest.String()
}

// wantError checks the kind and the words of an error.
func wantError(t *testing.T, err error, retry, outage bool, words string) {
	t.Helper()
	var e *transfer.Error
	if !errors.As(err, &e) || e.Transient() != retry || e.Outage() != outage || !strings.Contains(e.Error(), words) {
		t.Errorf("error %v (%+v), want retry %v, outage %v, and %q", err, e, retry, outage, words)
	}
}

func TestTagIsPulledAgainAndFallsBackToWhatIsThere(t *testing.T) {
	t.Parallel()
	e := begin(t)
	name, first := e.push("a/moving:tag", "first")
	if got := e.mustStage(name, ""); got != first {
		t.Errorf("got %s, want %s", got, first)
	}
	_, second := e.push("a/moving:tag", "second")
	if got := e.mustStage(name, ""); got != second {
		t.Errorf("got %s, want the tag's new image %s", got, second)
	}
	e.registry.Intercept = func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	for _, name := range []string{name, second} {
		if got := e.mustStage(name, ""); got != second {
			t.Errorf("%s without its registry is %s, want %s", name, got, second)
		}
	}
	_, err := e.stage(e.registry.Host+"/a/other:tag", "")
	wantError(t, err, true, true, "image "+e.registry.Host+"/a/other:tag: the registry cannot be reached: ")
}

func TestImageThatOnlyTheEngineHasIsFound(t *testing.T) {
	t.Parallel()
	e := begin(t)
	local := "cl-slurm-local-" + strings.ToLower(rand.Text()) + ":latest"
	load := exec.Command(e.Engine.Program, "import", "-", local)
	load.Env, load.Stdin = e.Engine.Env, bytes.NewReader(imagetest.TarStream(t, imagetest.Regular("file", "x")))
	id, err := load.Output()
	must(t, err)
	t.Cleanup(func() { _, _ = e.docker("rmi", "--force", local) })
	if got := e.mustStage(strings.TrimSuffix(local, ":latest"), ""); got != strings.TrimSpace(string(id)) {
		t.Errorf("got %s, want the image's id %s", got, id)
	}
}

func TestSixteenBundlesShareAPull(t *testing.T) {
	t.Parallel()
	e := begin(t)
	name, want := e.push("a/shared:1", "shared")
	var manifests atomic.Int64
	held := make(chan struct{})
	e.registry.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/blobs/") && r.Method == http.MethodGet {
			<-held
		}
		if strings.HasSuffix(r.URL.Path, "/manifests/1") {
			manifests.Add(1)
		}
		return false
	}
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			if got, err := e.stage(name, fmt.Sprint("row", i)); err != nil || got != want {
				t.Errorf("got %s, %v", got, err)
			}
		})
	}
	testenv.Poll(func() bool { return manifests.Load() > 0 })
	close(held)
	all.Wait()
	if n := manifests.Load(); n > 4 { // a pull asks once or twice, and a late bundle pulls again
		t.Errorf("the registry was asked %d times", n)
	}
}

func TestImageAboveTheBoundIsRefusedBeforeItIsPulled(t *testing.T) {
	t.Parallel()
	e := begin(t)
	e.MaxImageBytes = 10 << 10
	name, _ := e.push("a/large:1", noise(11<<10))
	_, err := e.stage(name, "")
	wantError(t, err, false, false, "image "+name+": its size ")
	wantError(t, err, false, false, " exceeds the maximum image size allowed, 10k (--max-image-size)")
	if e.has(name) {
		t.Error("the image was pulled")
	}
	small, want := e.push("a/small:1", "small")
	if got := e.mustStage(small, ""); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// noise is a text that does not compress.
func noise(n int) string {
	text := make([]byte, n)
	state := uint32(1)
	for i := range text {
		state = state*1664525 + 1013904223
		text[i] = byte(state >> 24)
	}
	return string(text)
}

func TestTrimRemovesTheLeastRecentlyUsedOfOurOwnThatNobodyNeeds(t *testing.T) {
	t.Parallel()
	e := begin(t)
	e.MaxStoreBytes = 1
	over := map[cache.Holder]bool{"row1": true}
	e.Over = func(context.Context, string, []cache.Holder) (map[cache.Holder]bool, error) { return over, nil }
	foreign, _ := e.push("a/foreign:1", "of somebody else")
	if output, err := e.docker("pull", foreign); err != nil {
		t.Fatal(output)
	}
	tagged, _ := e.push("a/tagged:1", "tagged by somebody else")
	needed, _ := e.push("a/needed:1", "needed")
	ended, _ := e.push("a/ended:1", "ended")
	e.mustStage(foreign, "row1")
	e.mustStage(tagged, "row1")
	e.mustStage(needed, "row2")
	e.mustStage(ended, "row1")
	if output, err := e.docker("tag", tagged, "mine.example/kept:1"); err != nil {
		t.Fatal(output)
	}
	t.Cleanup(func() { _, _ = e.docker("rmi", "--force", "mine.example/kept:1") })

	again := &realEngine{t: t, registry: e.registry, Images: &engineimages.Images{ // after a restart
		Engine: e.Engine, RecordsPath: e.RecordsPath, MaxStoreBytes: 1, Over: e.Over, Now: e.Now,
	}}
	removed, err := again.Trim(t.Context())
	if want := []string{tagged, ended}; err != nil || !slices.Equal(removed, want) {
		t.Errorf("removed %q, want %q: %v", removed, want, err)
	}
	for name, want := range map[string]bool{foreign: true, tagged: false, "mine.example/kept:1": true, needed: true, ended: false} {
		if got := e.has(name); got != want {
			t.Errorf("%s is there: %v", name, got)
		}
	}
	over["row2"] = true
	removed, err = again.Trim(t.Context())
	if err != nil || !slices.Equal(removed, []string{needed}) || !e.has(foreign) {
		t.Errorf("removed %q: %v", removed, err)
	}
}

// beside returns another worker's Images with the same file.
func (e *realEngine) beside(home string) *realEngine {
	other := &realEngine{t: e.t, registry: e.registry}
	other.Images = &engineimages.Images{
		Engine: e.Engine, Source: e.Source, AtOnce: 2, RecordsPath: e.RecordsPath, Home: home, MaxStoreBytes: e.MaxStoreBytes, Over: e.Over, Now: e.Now,
	}
	return other
}

func TestImageIsKeptForTheHoldersOfOtherWorkersAndRemovedByAny(t *testing.T) {
	t.Parallel()
	e := begin(t)
	e.MaxStoreBytes = 1
	gone := map[string]bool{"one": true}
	e.Over = func(_ context.Context, home string, holders []cache.Holder) (map[cache.Holder]bool, error) {
		over := map[cache.Holder]bool{}
		for _, h := range holders {
			over[h] = gone[home]
		}
		return over, nil
	}
	one, two := e.beside("one"), e.beside("two")
	name, pinned := e.push("a/beside:1", "beside")
	one.mustStage(name, "row1")
	two.mustStage(name, "row2")
	if removed, err := one.Trim(t.Context()); err != nil || len(removed) > 0 || !e.has(name) {
		t.Errorf("removed %q: %v", removed, err)
	}
	gone["two"] = true
	if removed, err := one.Trim(t.Context()); err != nil || len(removed) != 1 || e.has(pinned) {
		t.Errorf("removed %q: %v", removed, err)
	}
	two.mustStage(name, "") // it is pulled again
	if !e.has(name) {
		t.Error("the image was not pulled again")
	}
}

func TestWorkersLoseNoRecordsOfEachOther(t *testing.T) {
	t.Parallel()
	e := begin(t)
	e.MaxStoreBytes = 1
	var all sync.WaitGroup
	for i := range 4 {
		worker := e.beside(fmt.Sprint(i))
		for j := range 2 {
			name, _ := e.push(fmt.Sprintf("a/many%d%d:1", i, j), fmt.Sprint(i, j))
			all.Go(func() {
				if _, err := worker.stage(name, ""); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	if removed, err := e.Trim(t.Context()); err != nil || len(removed) != 8 {
		t.Errorf("removed %q: %v", removed, err)
	}
}

func TestImageOfARunningContainerIsNotTrimmed(t *testing.T) {
	t.Parallel()
	e := begin(t)
	e.MaxStoreBytes = 1
	name, pinned := e.push("a/running:1", "running")
	e.mustStage(name, "")
	id, err := e.docker("create", "--network", "none", pinned, "/never")
	if err != nil {
		t.Fatal(id)
	}
	if removed, err := e.Trim(t.Context()); err != nil || len(removed) > 0 || !e.has(name) {
		t.Errorf("removed %q: %v", removed, err)
	}
	_, err = e.docker("rm", id)
	must(t, err)
	if removed, err := e.Trim(t.Context()); err != nil || len(removed) != 1 || e.has(pinned) {
		t.Errorf("removed %q: %v", removed, err)
	}
}

func TestFailuresAreOfTheUserOrOfTheSite(t *testing.T) {
	t.Parallel()
	e := begin(t)
	refused := map[string]int{"/a/private": http.StatusUnauthorized, "/a/busy": http.StatusTooManyRequests}
	e.registry.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		for part, status := range refused {
			if strings.Contains(r.URL.Path, part) {
				w.WriteHeader(status)
				return true
			}
		}
		return false
	}
	for name, want := range map[string]struct {
		retry, outage bool
		words         string
	}{
		"":                               {false, false, "image: none was asked for"},
		"/shared/x.sif":                  {false, false, "docker runs images of registries and of its own store only"},
		"Bad..Name":                      {false, false, `image "Bad..Name": `},
		e.registry.Host + "/a/none:1":    {false, false, "/a/none:1: not found in the registry"},
		e.registry.Host + "/a/private:1": {false, false, "/a/private:1: the registry denies access: the image is private and `docker login` has not been run for this worker, or it does not exist"},
		e.registry.Host + "/a/busy:1":    {true, true, "/a/busy:1: the registry has had too many requests: "},
		"127.0.0.1:1/x:1":                {true, true, "the registry cannot be reached: "},
	} {
		_, err := e.stage(name, "")
		wantError(t, err, want.retry, want.outage, want.words)
	}
}

// clientThatFails prints $SAID for each pull. Its store is empty.
const clientThatFails = `#!/bin/sh
case "$1 $2" in
pull*) echo 'more before it' >&2; echo "$SAID" >&2; exit 1 ;;
'image ls') exit 0 ;;
esac
echo 'Error response from daemon: No such image: x' >&2
exit 1
`

// These are outputs of clients of Docker 20.10 to 28 and Podman 4.3.
func TestWordsOfEnginesAreUnderstood(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]struct {
		retry, outage bool
		words         string
	}{
		"Error response from daemon: pull access denied for nosuch, repository does not exist or may require 'docker login': denied: requested access to the resource is denied":       {false, false, "the registry denies access"},
		"Error response from daemon: manifest for debian:nosuch not found: manifest unknown: manifest unknown":                                                                         {false, false, "not found in the registry"},
		`Error response from daemon: failed to resolve reference "docker.io/a/b:1": docker.io/a/b:1: not found`:                                                                        {false, false, "not found in the registry"},
		"Error response from daemon: no matching manifest for linux/amd64 in the manifest list entries":                                                                                {false, false, "no matching manifest for linux/amd64"},
		"Error response from daemon: toomanyrequests: You have reached your pull rate limit.":                                                                                          {true, true, "the registry has had too many requests"},
		`Error response from daemon: Get "https://registry-1.docker.io/v2/": net/http: request canceled while waiting for connection (Client.Timeout exceeded while awaiting headers)`: {true, true, "the registry cannot be reached"},
		`Error response from daemon: Get "https://registry-1.docker.io/v2/": dial tcp: lookup registry-1.docker.io on 10.0.0.1:53: no such host`:                                       {true, true, "the registry cannot be reached"},
		"write /var/lib/docker/tmp/GetImageBlob1: no space left on device":                                                                                                             {true, true, "docker has no room for it"},
		"Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?":                                                                            {true, true, "docker cannot be used: Cannot connect"},
		`permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: Get "http://x/json": dial unix: connect: permission denied`:             {true, true, "docker cannot be used: permission denied"},
		"Error: initializing source docker://a/b:1: reading manifest 1 in docker.io/a/b: manifest unknown":                                                                             {false, false, "not found in the registry"},
		"Error: initializing source docker://a/b:1: unable to retrieve auth token: invalid username/password: unauthorized: authentication required":                                   {false, false, "the registry denies access"},
		"something that nobody has seen": {true, false, "docker: something that nobody has seen"},
	} {
		program := filepath.Join(t.TempDir(), "docker")
		testenv.WriteProgram(t, program, []byte(clientThatFails))
		e := &realEngine{t: t, Images: &engineimages.Images{
			Engine: engineimages.Engine{Program: program, Env: []string{"SAID=" + message}}, RecordsPath: filepath.Join(t.TempDir(), "images.json"), Now: time.Now,
		}}
		_, err := e.stage("a/b:1", "")
		wantError(t, err, want.retry, want.outage, "image a/b:1: "+want.words)
		if full := strings.Contains(message, "no space"); full != transfer.IsFull(err) {
			t.Errorf("%s: the disk is full: %v", message, !full)
		}
	}
}

func TestAddressOfTheEngineIsThatOfItsClient(t *testing.T) {
	t.Parallel()
	host, client := docker.Host(t)
	for want, env := range map[string][]string{host: {"DOCKER_HOST=" + host}, "unix:///var/run/docker.sock": nil} {
		e := engineimages.Engine{Program: client, Env: append(env, "HOME="+t.TempDir())}
		if got, err := e.Address(t.Context()); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", env, got, err, want)
		}
	}
}

func TestEngineThatCannotBeUsedIsAnOutage(t *testing.T) {
	t.Parallel()
	e := begin(t)
	e.Engine.Env = []string{"DOCKER_HOST=unix:///nonexistent"}
	_, err := e.stage("127.0.0.1:1/x:1", "")
	wantError(t, err, true, true, "docker cannot be used: ")
	e.Engine.Program = "/nonexistent/docker"
	_, err = e.stage("127.0.0.1:1/x:1", "")
	wantError(t, err, true, true, "docker cannot be used: ")
}

// crashing is a socket of an engine that crashes at each pull, and is there again at once.
func (e *realEngine) crashing() (host string) {
	e.t.Helper()
	engine := strings.TrimPrefix(e.Engine.Env[0], "DOCKER_HOST=unix://")
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", engine)
	}
	proxy := &httputil.ReverseProxy{
		Transport: &http.Transport{DialContext: dial},
		Rewrite:   func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "engine" },
	}
	dir, err := os.MkdirTemp("", "crash-") // sockets have short paths
	must(e.t, err)
	e.t.Cleanup(func() { must(e.t, os.RemoveAll(dir)) })
	listener, err := net.Listen("unix", filepath.Join(dir, "s"))
	must(e.t, err)
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/images/create") {
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, r)
	})}}
	server.Start()
	e.t.Cleanup(server.Close)
	return "unix://" + filepath.Join(dir, "s")
}

func TestImageThatCrashesTheEngineIsNoOutage(t *testing.T) {
	t.Parallel()
	e := begin(t)
	name, _ := e.push("a/crash:1", "crash")
	e.Engine.Env[0] = "DOCKER_HOST=" + e.crashing()
	_, err := e.stage(name, "")
	wantError(t, err, false, false, "image "+name+": docker fails at it, and answers otherwise: ")
	e.registry.Intercept = func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	}
	_, err = e.stage(name, "")
	wantError(t, err, true, true, "image "+name+": ")
}

// rawConfigImage is an image with another text as its configuration.
type rawConfigImage struct {
	v1.Image

	config []byte
}

func (i rawConfigImage) RawConfigFile() ([]byte, error) { return i.config, nil }

func (i rawConfigImage) ConfigFile() (*v1.ConfigFile, error) { return partial.ConfigFile(i) }

func (i rawConfigImage) ConfigName() (v1.Hash, error) { return partial.ConfigName(i) }

func (i rawConfigImage) Manifest() (*v1.Manifest, error) {
	m, err := i.Image.Manifest()
	if err != nil {
		return nil, err
	}
	m = m.DeepCopy()
	m.Config.Digest, m.Config.Size, err = v1.SHA256(bytes.NewReader(i.config))
	return m, err
}

func (i rawConfigImage) RawManifest() ([]byte, error) { return partial.RawManifest(i) }

func (i rawConfigImage) Digest() (v1.Hash, error) { return partial.Digest(i) }

func (i rawConfigImage) Size() (int64, error) { return partial.Size(i) }

// Docker 20.10 crashes at such an image, and later versions run it.
func TestImageWithoutAConfigurationIsNoOutage(t *testing.T) {
	t.Parallel()
	e := begin(t)
	img := imagetest.Tiny(t, "null")
	config, err := img.ConfigFile()
	must(t, err)
	name := e.registry.Push(t, "a/null:1", rawConfigImage{img, []byte(fmt.Sprintf(
		`{"architecture": %q, "os": "linux", "config": null, "rootfs": {"type": "layers", "diff_ids": [%q]}}`, runtime.GOARCH, config.RootFS.DiffIDs[0]))})
	t.Cleanup(func() { _, _ = e.docker("rmi", "--force", name) })
	if _, err := e.stage(name, ""); err != nil {
		wantError(t, err, false, false, "image "+name+": docker fails at it, and answers otherwise: ")
	}
}
