package source_test

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func TestTagResolvesToTheDigestThatItHasNow(t *testing.T) {
	t.Parallel()
	reg := imagetest.Start(t)
	for _, content := range []string{"first", "second"} {
		img := imagetest.Tiny(t, content)
		got := imagetest.Resolve(t, reg.Push(t, "a/b:tag", img))
		want, err := img.Digest()
		must(t, err)
		if got.Digest != want.String() || got.Architecture != runtime.GOARCH || got.PinnedReference() != reg.Host+"/a/b@"+want.String() {
			t.Errorf("resolved to %+v (%s), want %s", got, got.PinnedReference(), want)
		}
	}
}

func TestRefusalsOfARegistryAreReportedInWords(t *testing.T) {
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
			ref, err := source.ParseReference(reg.Host + "/some/image")
			must(t, err)
			_, err = imagetest.Source().Resolve(t.Context(), ref)
			imagetest.WantError(t, err, tt.transient, tt.words)
		})
	}
}

func TestUnknownImageIsNotFound(t *testing.T) {
	t.Parallel()
	reg := imagetest.Start(t)
	ref, err := source.ParseReference(reg.Host + "/nosuch:latest")
	must(t, err)
	_, err = imagetest.Source().Resolve(t.Context(), ref)
	if want := `image "` + reg.Host + `/nosuch:latest": not found in the registry`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestUnreachableRegistryIsNamed(t *testing.T) {
	t.Parallel()
	ref, err := source.ParseReference("127.0.0.1:1/x")
	must(t, err)
	_, err = imagetest.Source().Resolve(t.Context(), ref)
	imagetest.WantError(t, err, true, "registry 127.0.0.1:1 cannot be reached: ")
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
	ref, err := source.ParseReference(reg.Host + "/x")
	must(t, err)
	if _, err := imagetest.Source().Resolve(ctx, ref); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the context's", err)
	}
}

func TestOldAndForeignManifestsAreRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ kind, body, words string }{
		"signed schema 1": {"application/vnd.docker.distribution.manifest.v1+prettyjws", `{"schemaVersion": 1}`, "Docker's old schema 1"},
		"schema 1":        {"application/vnd.docker.distribution.manifest.v1+json", `{"schemaVersion": 1}`, "Docker's old schema 1"},
		"unsaid schema 1": {"application/json", `{"schemaVersion": 1, "fsLayers": []}`, "Docker's old schema 1"},
		"artifact":        {"application/vnd.oci.artifact.manifest.v1+json", `{"schemaVersion": 2}`, "it is not a container image but application/vnd.oci.artifact"},
		"chart":           {"", `{"schemaVersion": 2, "config": {"mediaType": "application/vnd.cncf.helm.config.v1+json"}}`, "it is not a container image but application/vnd.cncf.helm"},
		"SIF":             {"", `{"schemaVersion": 2, "config": {"mediaType": "application/vnd.sylabs.sif.config.v1+json"}}`, "apptainer pull oras://"},
		"image and list":  {"", `{"schemaVersion": 2, "config": {}, "manifests": []}`, "at once"},
		"empty list":      {"", `{"schemaVersion": 2, "manifests": []}`, "has no image in it"},
		"page":            {"text/html", `<html>`, "cannot be read"},
		"absurd size":     {"", strings.Repeat(" ", 5<<20), "more than 4194304 bytes"},
		"many objects":    {"", `{"schemaVersion": 2, "manifests": [` + strings.Repeat(`{},`, 1<<20) + `{}]}`, "cannot be read: it has more than 50000 JSON objects"},
		"many levels":     {"", `{"schemaVersion": 2, "config": {}, "x": ` + strings.Repeat(`[`, 10_001) + strings.Repeat(`]`, 10_001) + `}`, "cannot be read: "},
		"a long type":     {"", `{"schemaVersion": 2, "mediaType": "` + strings.Repeat("x", 1<<20) + `"}`, "it is not a container image but xxx"},
		"corrupt list":    {"", `{"schemaVersion": 2, "manifests": [{"mediaType": "application/vnd.oci.image.index.v1+json", "digest": "sha256:` + strings.Repeat("0", 64) + `"}]}`, "its manifest is corrupt"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reg := imagetest.Start(t)
			reg.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.Contains(r.URL.Path, "/manifests/") {
					return false
				}
				w.Header().Set("Content-Type", test.kind)
				_, _ = w.Write([]byte(test.body))
				return true
			}
			_, err := imagetest.Source().Resolve(t.Context(), imagetest.Reference(t, reg.Host+"/old"))
			imagetest.WantError(t, err, false, test.words)
			if n := len(err.Error()); n > 2000 {
				t.Errorf("the error is of %d bytes", n)
			}
		})
	}
}

func TestPlatformIsFoundInEveryKindOfList(t *testing.T) {
	t.Parallel()
	reg := imagetest.Start(t)
	child := func(content string, platform *v1.Platform) mutate.IndexAddendum {
		img := imagetest.Tiny(t, content)
		if content == "arm64" || content == "amd64" {
			config, err := img.ConfigFile()
			must(t, err)
			config = config.DeepCopy()
			config.Architecture = content
			if img, err = mutate.ConfigFile(img, config); err != nil {
				t.Fatal(err)
			}
		}
		return mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: platform}}
	}
	linux := func(architecture, variant string) *v1.Platform {
		return &v1.Platform{OS: "linux", Architecture: architecture, Variant: variant}
	}
	attestation := child("attestation", &v1.Platform{OS: "unknown", Architecture: "unknown"})
	attestation.Annotations = map[string]string{"vnd.docker.reference.type": "attestation-manifest"}
	list := func(adds ...mutate.IndexAddendum) v1.ImageIndex { return mutate.AppendManifests(empty.Index, adds...) }
	nested := func(index v1.ImageIndex) mutate.IndexAddendum { return mutate.IndexAddendum{Add: index} }
	unsaid := func(architecture string) mutate.IndexAddendum { return child(architecture, nil) }
	deep := list(child("deep", linux("amd64", "")))
	for range 5 {
		deep = list(nested(deep))
	}
	six := list(child("x86", linux("amd64", "")), child("a64", linux("arm64", "")), child("v7", linux("arm", "v7")), child("v6", linux("arm", "v6")),
		child("win", &v1.Platform{OS: "windows", Architecture: "amd64"}), attestation)
	for name, test := range map[string]struct {
		index v1.ImageIndex
		want  string // the requested platform
		gives string // content of the image, or words of the error
	}{
		"one of six":      {six, "amd64", "x86"},
		"another":         {six, "arm64", "a64"},
		"default variant": {six, "arm", "v7"},
		"none of six":     {six, "ppc64le", "it is not made for linux/ppc64le, only for linux/amd64, linux/arm/v6, linux/arm/v7, linux/arm64, windows/amd64"},
		"attested":        {list(attestation, child("a", linux("amd64", ""))), "amd64", "a"},
		"only attested":   {list(attestation), "amd64", "has no image in it"},
		"baseline":        {list(child("v3", linux("amd64", "v3")), child("v1", linux("amd64", ""))), "amd64", "v1"},
		"best variant":    {list(child("v1", linux("amd64", "")), child("v3", linux("amd64", "v3")), child("v2", linux("amd64", "v2"))), "amd64/v3", "v3"},
		"next below":      {list(child("v1", linux("amd64", "")), child("v2", linux("amd64", "v2"))), "amd64/v3", "v2"},
		"none above":      {list(child("v3", linux("amd64", "v3"))), "amd64", "it is not made for linux/amd64, only for linux/amd64/v3"},
		"arm64 unsaid v8": {list(child("v8", linux("arm64", "v8"))), "arm64", "v8"},
		"arm64 v8.2":      {list(child("v8", linux("arm64", "v8"))), "arm64/v8.2", "v8"},
		"arm v6":          {list(child("v7", linux("arm", "v7")), child("v6", linux("arm", "6")), child("v5", linux("arm", "v5"))), "arm/v6", "v6"},
		"other spelling":  {list(child("a", linux("x86_64", ""))), "amd64", "a"},
		"Windows":         {list(child("w", &v1.Platform{OS: "windows", Architecture: "amd64", OSVersion: "10.0.17763.1"})), "amd64", "only for windows/amd64:10.0.17763.1"},
		"nested":          {list(nested(list(child("other", linux("s390x", "")))), nested(list(attestation, child("a", linux("amd64", ""))))), "amd64", "a"},
		"too deep":        {deep, "amd64", "nested too deeply"},
		"unsaid":          {list(unsaid("arm64"), unsaid("amd64")), "amd64", "amd64"},
		"unsaid other":    {list(unsaid("arm64")), "amd64", "only for linux/arm64"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ref := imagetest.Reference(t, reg.PushList(t, "list-"+strings.ReplaceAll(strings.ToLower(name), " ", "-"), test.index))
			r := imagetest.Source()
			r.Architecture = test.want
			got, err := r.Resolve(t.Context(), ref)
			if err != nil {
				imagetest.WantError(t, err, false, test.gives)
				return
			}
			h, err := test.index.Digest()
			if err != nil || got.Listed != h.String() || strings.Contains(got.Architecture, "/") {
				t.Errorf("resolved to %+v, %v", got, err)
			}
			want, err := child(test.gives, nil).Add.Digest()
			if err != nil || got.Digest != want.String() {
				t.Errorf("resolved to %s, want %s of %s", got.Digest, want, test.gives)
			}
		})
	}
}

var must = testenv.Must
