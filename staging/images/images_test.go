package images

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/apptainer/sifconfig"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

const run1 = "0x00000000000000000000000000000001"

var must = testenv.Must

// imageSite is a registry, and a shared disk for its images.
type imageSite struct {
	t        *testing.T
	registry *imagetest.Registry
	dir      string // of the cache
	// manifests and blobs count the requests to the registry.
	manifests, blobs atomic.Int64
	down             atomic.Bool
	// only, if it is set, is the only user with access to the registry.
	only atomic.Pointer[string]
	// stuck, if it is set, holds all answers back until it is closed.
	stuck atomic.Pointer[chan struct{}]
	// hold, if it is set, holds layers back until it is closed.
	hold chan struct{}
	now  atomic.Int64 // passed seconds
	// limit, if it is set, is the Retry-After of the registry, in seconds.
	limit atomic.Int64
}

func startImages(t *testing.T) *imageSite {
	t.Helper()
	testenv.Containers(t)
	s := &imageSite{t: t, registry: imagetest.Start(t), dir: t.TempDir()}
	s.registry.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			return false
		}
		if stuck := s.stuck.Load(); stuck != nil {
			<-*stuck
		}
		user, _, _ := r.BasicAuth()
		only := s.only.Load()
		switch {
		case s.down.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		case only != nil && user != *only:
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return true
		case strings.Contains(r.URL.Path, "/manifests/"):
			s.manifests.Add(1)
			if limit := s.limit.Load(); limit > 0 {
				w.Header().Set("Retry-After", fmt.Sprint(limit))
				w.WriteHeader(http.StatusTooManyRequests)
				return true
			}
		case strings.Contains(r.URL.Path, "/blobs/"):
			if s.blobs.Add(1); s.hold != nil {
				<-s.hold
			}
		}
		return false
	}
	return s
}

// tinyImage returns an image for an architecture in Go's spelling.
func tinyImage(t *testing.T, content, architecture string) v1.Image {
	t.Helper()
	img := imagetest.Tiny(t, content)
	config, err := img.ConfigFile()
	must(t, err)
	config = config.DeepCopy()
	config.Architecture = architecture
	img, err = mutate.ConfigFile(img, config)
	must(t, err)
	return img
}

func (s *imageSite) push(name, content string) string {
	s.t.Helper()
	return s.registry.Push(s.t, name, imagetest.Tiny(s.t, content))
}

// images returns the Images of a bridge on a host.
func (s *imageSite) images(host string) *Images {
	s.t.Helper()
	content, err := cache.Open(s.dir, cache.Options{Settle: -1, Host: host})
	must(s.t, err)
	return &Images{
		Cache: content, Kept: Records(s.dir + "/kept"), References: References{Dir: s.dir + "/names"},
		Converter: apptainer.Converter{Source: imagetest.Source()},
		Remember:  time.Minute, AtOnce: 2,
		Now: func() time.Time { return time.Unix(1_800_000_000+s.now.Load(), 0) },
	}
}

// stage brings an image for a bundle of an owner.
func (s *imageSite) stage(im *Images, owner, image string) (spool.Inputs, error) {
	s.t.Helper()
	return im.Stage(s.t.Context(), codalab.RunBundle{UUID: run1, OwnerID: owner}, image, "", "", &transfer.Item{})
}

func refused(t *testing.T, err error, want string, transient bool) {
	t.Helper()
	var e *transfer.Error
	if !errors.As(err, &e) || e.Transient() != transient || !strings.Contains(e.Error(), want) {
		t.Errorf("error %q, transient %v; want %q, transient %v", err, e.Transient(), want, transient)
	}
}

func TestThousandBundlesOfATagAreOneQuestion(t *testing.T) {
	t.Parallel()
	s := startImages(t)
	image := s.push("tiny:latest", "one")
	im := s.images("")
	var all sync.WaitGroup
	digests := make([]string, 1000)
	for i := range digests {
		all.Go(func() {
			inputs, err := s.stage(im, "alice", image)
			if err != nil {
				t.Error(err)
			}
			digests[i] = inputs.PinnedReference
		})
	}
	all.Wait()
	asked := s.manifests.Load()
	if _, err := s.stage(im, "bob", image); err != nil || s.manifests.Load() != asked || asked > 2 {
		t.Errorf("the registry was asked for %d manifests, and %d with another bundle; want one for the tag, and one for the conversion", asked, s.manifests.Load())
	}
	for _, d := range digests {
		if d != digests[0] || !strings.HasPrefix(d, s.registry.Host+"/tiny@sha256:") {
			t.Fatalf("docker_image %q and %q", d, digests[0])
		}
	}
	// A bundle may use the value of docker_image as a name.
	again, err := s.stage(im, "alice", digests[0])
	if err != nil || again.PinnedReference != digests[0] || s.blobs.Load() > 2 {
		t.Errorf("%s again: %+v, %v, %d blobs", digests[0], again, err, s.blobs.Load())
	}
}

func TestTagThatMovedIsNoticedAfterAWhile(t *testing.T) {
	t.Parallel()
	s := startImages(t)
	image := s.push("tiny:latest", "one")
	im := s.images("")
	before, err := s.stage(im, "alice", image)
	must(t, err)
	s.push("tiny:latest", "two")
	s.now.Add(59)
	if soon, err := s.stage(im, "alice", image); err != nil || soon.PinnedReference != before.PinnedReference {
		t.Errorf("within the minute: %v, %v", soon, err)
	}
	s.now.Add(1)
	if later, err := s.stage(im, "alice", image); err != nil || later.PinnedReference == before.PinnedReference || later.SIF == before.SIF {
		t.Errorf("after the minute: %v, %v", later, err)
	}
}

// For an image that the registry does not have, it is asked once for all bundles that try again,
// and again a few seconds later.
func TestUnknownImageIsAskedForAgainSoon(t *testing.T) {
	t.Parallel()
	s := startImages(t)
	im := s.images("")
	for range 100 {
		_, err := s.stage(im, "alice", s.registry.Host+"/late:1")
		refused(t, err, `image "`+s.registry.Host+`/late:1": `, false)
	}
	if n := s.manifests.Load(); n != 1 {
		t.Errorf("the registry was asked %d times", n)
	}
	s.push("late:1", "one")
	s.now.Add(5)
	_, err := s.stage(im, "alice", s.registry.Host+"/late:1")
	must(t, err)
}

// The architecture of a queue's nodes decides which of a tag's images a bundle gets.
func TestImageIsThatOfTheQueuesNodes(t *testing.T) {
	t.Parallel()
	s := startImages(t)
	platforms := map[string]v1.Image{}
	for _, a := range []string{"amd64", "arm64"} {
		platforms["linux/"+a] = tinyImage(t, a, a)
	}
	image := s.registry.PushIndex(t, "both:1", platforms)
	im := s.images("")
	stage := func(architecture string) (spool.Inputs, error) {
		return im.Stage(t.Context(), codalab.RunBundle{UUID: run1}, image, architecture, "", &transfer.Item{})
	}
	for _, a := range []string{"amd64", "arm64", "amd64"} {
		inputs, err := stage(a)
		must(t, err)
		if config, err := sifconfig.Read(inputs.SIF); err != nil || config.Architecture != a {
			t.Errorf("for %s: %+v, %v", a, config, err)
		}
	}
	_, err := stage("s390x")
	refused(t, err, "it is not made for linux/s390x, only for linux/amd64, linux/arm64", false)
}

// A HEAD request shows that a tag still names the same image.
func TestTagIsOnlyLookedAtWhenTheTimeIsOver(t *testing.T) {
	t.Parallel()
	s := startImages(t)
	image := s.push("tiny:latest", "one")
	im := s.images("")
	_, err := s.stage(im, "alice", image)
	must(t, err)
	asked := s.manifests.Load()
	for range 100 {
		s.now.Add(3600)
		_, err := s.stage(im, "alice", image)
		must(t, err)
	}
	if more := s.manifests.Load() - asked; more != 0 {
		t.Errorf("the manifest was fetched %d times more; HEAD requests are enough", more)
	}
}

// No bundle asks a registry before the time in its Retry-After, and errors tell that time.
func TestRateLimitIsHeeded(t *testing.T) {
	t.Parallel()
	s := startImages(t)
	image := s.push("tiny:latest", "one")
	s.limit.Store(900)
	im := s.images("")
	for i := range 3 {
		_, err := s.stage(im, "alice", image)
		refused(t, err, "wants to be asked again in 15m", true)
		var e *transfer.Error
		if want := time.Duration(900-i*300) * time.Second; !errors.As(err, &e) || e.RetryAfter() != want || !e.Outage() {
			t.Errorf("after %d s: wait for %v, want %v", i*300, e.RetryAfter(), want)
		}
		s.now.Add(300)
	}
	if n := s.manifests.Load(); n > 1 {
		t.Errorf("the registry was asked %d times", n)
	}
	s.limit.Store(0)
	_, err := s.stage(im, "alice", image)
	must(t, err)
}

// Of two hosts that want an image at the same time, one converts, and the other names it in its
// progress.
func TestImageIsConvertedOnceForAllHosts(t *testing.T) {
	t.Parallel()
	s := startImages(t)
	image := s.push("tiny:1", "one")
	s.hold = make(chan struct{})
	first, second := s.images("login1"), s.images("login2")
	done := make(chan error, 1)
	go func() {
		_, err := first.Keep(t.Context(), wantedImage(t, image), func(transfer.Progress) {})
		done <- err
	}()
	testenv.Await(t, "the first host pulls", func() bool { return s.blobs.Load() > 0 })
	var once sync.Once
	var by string
	_, err := second.Keep(t.Context(), wantedImage(t, image), func(p transfer.Progress) {
		if p.Stage == transfer.Elsewhere {
			once.Do(func() {
				by = p.By
				close(s.hold)
			})
		}
	})
	must(t, errors.Join(err, <-done))
	if !strings.Contains(by, "host login1") || s.blobs.Load() > 2 {
		t.Errorf("it was brought in by %q; %d blobs were fetched", by, s.blobs.Load())
	}
}

func TestNamesOfImagesGoWithTheirSIFs(t *testing.T) {
	t.Parallel()
	s := startImages(t)
	im := s.images("")
	var digests []string
	for i := range 2 {
		image := s.push(fmt.Sprintf("tiny:%d", i), fmt.Sprint(i))
		for range 2 {
			inputs, err := s.stage(im, "alice", image)
			must(t, err)
			_, digest, _ := strings.Cut(inputs.PinnedReference, "@")
			digests = append(digests, digest)
		}
	}
	entries, err := im.Cache.Entries(t.Context())
	must(t, err)
	img, is := ParseKey(entries[0].Key)
	if references := im.References.Of(img.Digest, img.Architecture); !is || len(references) != 1 || !strings.Contains(references[0], "/tiny:") {
		t.Errorf("%+v has the references %q", img, references)
	}
	must(t, im.References.Forget(func(digest, _ string) bool { return digest == digests[0] }))
	if kept, gone := im.References.Of(digests[0], img.Architecture), im.References.Of(digests[2], img.Architecture); len(kept) != 1 || len(gone) != 0 {
		t.Errorf("%q, %q", kept, gone)
	}
	_, err = s.stage(im, "alice", s.registry.Host+"/tiny:1")
	if references := im.References.Of(digests[2], img.Architecture); err != nil || len(references) != 1 {
		t.Errorf("used again it has the references %q, %v", references, err)
	}
}
