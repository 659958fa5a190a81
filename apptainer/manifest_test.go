package apptainer_test

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
)

// A Windows image has layers that registries may not distribute. The error must tell that it is a
// Windows image.
func TestConfigurationThatDoesNotFitIsRefused(t *testing.T) {
	t.Parallel()
	stream := imagetest.TarStream(t, imagetest.Directory("Files"), imagetest.Directory("Hives"))
	for name, tt := range map[string]struct {
		image  v1.Image
		change func(c *v1.ConfigFile)
		words  string
	}{
		"Windows": {
			blobImage(t, gzipped(t, stream), types.DockerForeignLayer, stream),
			func(c *v1.ConfigFile) { c.OS, c.OSVersion = "windows", "10.0.20348.2227" }, "it is made for windows, and only Linux images can be run",
		},
		"another architecture": {
			imagetest.Tiny(t, "x"), func(c *v1.ConfigFile) { c.Architecture = "s390x" }, "it is made for linux/s390x, not for linux/" + runtime.GOARCH,
		},
		"fewer layers than the configuration names": {
			imagetest.Tiny(t, "x"), func(c *v1.ConfigFile) { c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, c.RootFS.DiffIDs[0]) }, "lists 1 layers, its configuration 2",
		},
		"no diffIDs": {imagetest.Tiny(t, "x"), func(c *v1.ConfigFile) { c.RootFS.DiffIDs = nil }, "lists 1 layers, its configuration 0"},
		"another diffID": {
			imagetest.Tiny(t, "x"), func(c *v1.ConfigFile) { c.RootFS.DiffIDs[0].Hex = strings.Repeat("0", 64) }, "it unpacks to sha256:",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			img := withConfig(t, tt.image, tt.change)
			failedConversion(t, apptainer.Converter{Source: imagetest.Source()}, published(t, img), false, tt.words)
		})
	}
}

func withConfig(t *testing.T, img v1.Image, change func(*v1.ConfigFile)) v1.Image {
	t.Helper()
	config, err := img.ConfigFile()
	must(t, err)
	config = config.DeepCopy()
	change(config)
	if img, err = mutate.ConfigFile(img, config); err != nil {
		t.Fatal(err)
	}
	return img
}

// Docker runs such images.
func TestNamesOfAPlatformAreInAnyCase(t *testing.T) {
	t.Parallel()
	other := map[string]string{"amd64": "X86_64", "arm64": "AArch64"}
	img := withConfig(t, imagetest.Tiny(t, "x"), func(c *v1.ConfigFile) {
		c.OS, c.Architecture = "Linux", cmp.Or(other[runtime.GOARCH], runtime.GOARCH)
	})
	converted(t, apptainer.Converter{}, published(t, img))
	reg := imagetest.Start(t)
	converted(t, apptainer.Converter{}, imagetest.Resolve(t, reg.PushIndex(t, "x", map[string]v1.Image{"Linux/" + runtime.GOARCH: img})))
}

// A registry, or a proxy in front of it, may send without end.
func TestEndlessResponsesAreRefused(t *testing.T) {
	t.Parallel()
	layer := imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular("a", "content")))
	image := imagetest.Image(t, v1.Config{}, layer)
	config, err := image.ConfigName()
	must(t, err)
	digest, err := layer.Digest()
	must(t, err)
	for name, at := range map[string]string{"manifest": "/manifests/", "configuration": config.Hex, "layer": digest.Hex} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reg := imagetest.Start(t)
			pushed := reg.Push(t, "x", image)
			img := imagetest.Resolve(t, pushed)
			var sent atomic.Int64
			reg.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, at) {
					return false
				}
				w.Header().Set("Content-Type", string(types.DockerManifestSchema2))
				for block := make([]byte, 64<<10); r.Context().Err() == nil; {
					n, err := w.Write(block)
					sent.Add(int64(n))
					if err != nil {
						break
					}
				}
				return true
			}
			failedConversion(t, apptainer.Converter{Source: imagetest.Source()}, img, false, "")
			if sent.Load() > 256<<20 {
				t.Errorf("took %d bytes", sent.Load())
			}
		})
	}
}

func TestUnsupportedLayersAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		layer v1.Layer
		words string
	}{
		{"foreign", static.NewLayer(imagetest.TarStream(t), types.DockerForeignLayer), "may not be distributed"},
		{"unknown", static.NewLayer([]byte("{}"), "application/x-model"), "its type application/x-model is not handled"},
		{"not a tar", static.NewLayer(bytes.Repeat([]byte("no tar"), 1000), types.DockerUncompressedLayer), "unreadable tar entry"},
		{"hostile link", imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Hardlink("a", "../../etc/shadow"))), `hard link to "etc/shadow", which does not exist`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			img := imagetest.Tiny(t, "base")
			img, err := mutate.Append(img, mutate.Addendum{Layer: tt.layer})
			must(t, err)
			failedConversion(t, apptainer.Converter{Source: imagetest.Source()}, published(t, img), false, tt.words)
		})
	}
}

func TestTooLargeSizesAreRefusedBeforeAnythingIsPulled(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int64{"sum that overflows": math.MaxInt64/2 + 1, "larger than any image": 1 << 60} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reg := imagetest.Start(t)
			a := static.NewLayer(imagetest.TarStream(t, imagetest.Regular("a", "1")), types.OCIUncompressedLayer)
			b := static.NewLayer(imagetest.TarStream(t, imagetest.Regular("b", "2")), types.OCIUncompressedLayer)
			img := imagetest.Image(t, v1.Config{}, a, b)
			pushed := reg.Push(t, "x", img)
			raw, err := img.RawManifest()
			must(t, err)
			lying := bytes.ReplaceAll(raw, []byte(`"size":2048,`), fmt.Appendf(nil, `"size":%d,`, size))
			if bytes.Count(lying, fmt.Append(nil, size)) != 2 {
				t.Fatalf("%s", lying)
			}
			reg.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if strings.Contains(r.URL.Path, "/manifests/") {
					w.Header().Set("Content-Type", string(types.DockerManifestSchema2))
					_, _ = w.Write(lying)
					return true
				}
				return false
			}
			failedConversion(t, apptainer.Converter{Source: imagetest.Source()}, imagetest.Resolve(t, pushed), false, "unpacks to more than is allowed")
		})
	}
}
