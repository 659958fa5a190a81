package apptainer_test

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
)

// tiny is an image that differs by its content.
func tiny(tb testing.TB, content string) v1.Image {
	tb.Helper()
	return imagetest.Image(tb, v1.Config{}, imagetest.GzipLayer(tb, imagetest.TarStream(tb, imagetest.Regular("f", content))))
}

func TestTagResolvesToTheDigestThatItHasNow(t *testing.T) {
	t.Parallel()
	reg := imagetest.Start(t)
	for _, content := range []string{"first", "second"} {
		img := tiny(t, content)
		got := resolve(t, reg.Push(t, "a/b:tag", img))
		want, err := img.Digest()
		if err != nil {
			t.Fatal(err)
		}
		if got.Digest != want.String() || got.Architecture != runtime.GOARCH || got.Pinned() != reg.Host+"/a/b@"+want.String() {
			t.Errorf("resolved to %+v (%s), want %s", got, got.Pinned(), want)
		}
	}
}

func TestListResolvesToOurPlatform(t *testing.T) {
	t.Parallel()
	reg := imagetest.Start(t)
	images := map[string]v1.Image{}
	for _, platform := range []string{"linux/amd64", "linux/arm64", "linux/arm/v7", "linux/arm/v6", "windows/amd64", "unknown/unknown"} {
		images[platform] = tiny(t, platform)
	}
	ref, err := apptainer.ParseReference(reg.PushIndex(t, "list", images))
	if err != nil {
		t.Fatal(err)
	}
	for architecture, platform := range map[string]string{"amd64": "linux/amd64", "arm64": "linux/arm64", "arm": "linux/arm/v7"} {
		r := quick()
		r.Architecture = architecture
		got, err := r.Resolve(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		if want, _ := images[platform].Digest(); got.Digest != want.String() || got.Architecture != architecture {
			t.Errorf("%s resolved to %+v, want %s of %s", architecture, got, want, platform)
		}
	}
	r := quick()
	r.Architecture = "ppc64le"
	_, err = r.Resolve(t.Context(), ref)
	wantImageError(t, err, false, "it is not made for linux/ppc64le, only for linux/amd64, linux/arm/v6, linux/arm/v7, linux/arm64, windows/amd64")
}

// wantImageError checks an error's kind and words.
func wantImageError(t *testing.T, err error, transient bool, words string) {
	t.Helper()
	var e *apptainer.ImageError
	if !errors.As(err, &e) {
		t.Fatalf("error %v, want an *ImageError", err)
	}
	if e.Transient() != transient || !strings.Contains(err.Error(), words) || !strings.Contains(err.Error(), `image "`+e.Image+`": `) {
		t.Errorf("error %q, transient %v; want transient %v and the words %q", err, e.Transient(), transient, words)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q is not one sentence", err)
	}
}

func TestRegistrysRefusalsAreSaidInWords(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		status    int
		transient bool
		words     string
	}{
		{"unknown", http.StatusNotFound, false, "not found in the registry"},
		{"private", http.StatusUnauthorized, false, "the registry denies access: the image is private or does not exist"},
		{"forbidden", http.StatusForbidden, false, "denies access"},
		{"rate limit", http.StatusTooManyRequests, true, "429 Too Many Requests"},
		{"trouble", http.StatusServiceUnavailable, true, "the registry is in trouble (503 Service Unavailable)"},
		{"nonsense", http.StatusTeapot, false, "the registry refuses"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			reg := imagetest.Start(t)
			reg.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path == "/v2/" {
					return false
				}
				w.WriteHeader(tt.status)
				return true
			}
			ref, err := apptainer.ParseReference(reg.Host + "/some/image")
			if err != nil {
				t.Fatal(err)
			}
			_, err = quick().Resolve(t.Context(), ref)
			wantImageError(t, err, tt.transient, tt.words)
		})
	}
}

func TestUnknownImageIsNotFound(t *testing.T) {
	t.Parallel()
	reg := imagetest.Start(t)
	ref, err := apptainer.ParseReference(reg.Host + "/nosuch:latest")
	if err != nil {
		t.Fatal(err)
	}
	_, err = quick().Resolve(t.Context(), ref)
	if want := `image "` + reg.Host + `/nosuch:latest": not found in the registry`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestUnreachableRegistryIsNamed(t *testing.T) {
	t.Parallel()
	for host, transient := range map[string]bool{"127.0.0.1:1": true, "registry.invalid": false} {
		ref, err := apptainer.ParseReference(host + "/x")
		if err != nil {
			t.Fatal(err)
		}
		_, err = quick().Resolve(t.Context(), ref)
		if host == "registry.invalid" && err != nil && !strings.Contains(err.Error(), "no such host") {
			t.Logf("this machine's resolver does not say that a name does not exist: %v", err)
			continue
		}
		wantImageError(t, err, transient, "registry "+host+" cannot be reached: ")
	}
}

func TestRegistryThatStallsIsGivenUp(t *testing.T) {
	t.Parallel()
	reg := imagetest.Start(t)
	reg.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
		<-r.Context().Done()
		return true
	}
	ref, err := apptainer.ParseReference(reg.Host + "/x")
	if err != nil {
		t.Fatal(err)
	}
	r := quick()
	r.Stall = 20 * time.Millisecond
	_, err = r.Resolve(t.Context(), ref)
	wantImageError(t, err, true, "cannot be reached")
}

func TestEndOfContextEndsAResolution(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	reg := imagetest.Start(t)
	reg.Intercept = func(_ http.ResponseWriter, r *http.Request) bool {
		cancel()
		<-r.Context().Done()
		return true
	}
	ref, err := apptainer.ParseReference(reg.Host + "/x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := quick().Resolve(ctx, ref); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
}

func TestOldAndForeignManifestsAreRefused(t *testing.T) {
	t.Parallel()
	for kind, words := range map[string]string{
		"application/vnd.docker.distribution.manifest.v1+prettyjws": "Docker's old schema 1",
		"application/vnd.docker.distribution.manifest.v1+json":      "Docker's old schema 1",
		"application/vnd.oci.artifact.manifest.v1+json":             "it is not a container image",
	} {
		reg := imagetest.Start(t)
		reg.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/manifests/") {
				return false
			}
			w.Header().Set("Content-Type", kind)
			_, _ = w.Write([]byte(`{"schemaVersion": 1}`))
			return true
		}
		ref, err := apptainer.ParseReference(reg.Host + "/old")
		if err != nil {
			t.Fatal(err)
		}
		_, err = quick().Resolve(t.Context(), ref)
		wantImageError(t, err, false, words)
	}
}
