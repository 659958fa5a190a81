package apptainer_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// toolThat returns a shell script that acts as a mksquashfs that reads tar streams.
func toolThat(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mksquashfs")
	text := "#!/bin/sh\ncase \" $* \" in *\" -version \"*) echo 'mksquashfs version 4.6 (2023/03/25)'; exit 0 ;; esac\n" + script + "\n"
	testenv.WriteProgram(t, path, []byte(text))
	return path
}

// A digest names the same content for everybody. So write access to an image's files must not be
// enough to change its SIF.
func TestLayerThatChangesBetweenTwoReadingsIsRefused(t *testing.T) {
	t.Parallel()
	// A file newer than the image makes the conversion read it twice.
	file := imagetest.Regular("a", "right")
	file.ModTime = time.Unix(1<<31, 0)
	stream := imagetest.TarStream(t, file)
	img := imagetest.Image(t, v1.Config{}, static.NewLayer(stream, types.OCIUncompressedLayer))
	dir := filepath.Join(t.TempDir(), "layout")
	index, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = index.AppendImage(img)
	}
	must(t, err)
	layers, err := img.Layers()
	must(t, err)
	digest, err := layers[len(layers)-1].Digest()
	must(t, err)
	opened := 0
	c := apptainer.Converter{Source: source.Source{OpenFile: source.FilesBelow(dir)}}
	open := c.Source.OpenFile
	c.Source.OpenFile = func(path string) (*os.File, error) {
		if filepath.Base(path) == digest.Hex {
			if opened++; opened == 2 {
				if err := os.WriteFile(path, bytes.Replace(stream, []byte("right"), []byte("wrong"), 1), 0o600); err != nil {
					t.Error(err)
				}
			}
		}
		return open(path)
	}
	resolved, err := c.Source.Resolve(t.Context(), imagetest.Reference(t, "oci:"+dir))
	must(t, err)
	failedConversion(t, c, resolved, false, "it unpacks to sha256:")
	if opened != 2 {
		t.Errorf("the layer was read %d times", opened)
	}
}

// closing fails with its own error when a request's context ends, as connections sometimes do.
type closing struct{ http.RoundTripper }

func (c closing) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.RoundTripper.RoundTrip(req)
	if err == nil {
		resp.Body = closed{resp.Body}
	}
	return resp, err
}

type closed struct{ io.ReadCloser }

func (c closed) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if errors.Is(err, context.Canceled) {
		err = &net.OpError{Op: "read", Net: "tcp", Err: net.ErrClosed}
	}
	return n, err
}

func TestConversionEndsWithItsToolWhateverTheRegistryDoes(t *testing.T) {
	t.Parallel()
	stream := imagetest.TarStream(t, imagetest.Regular("a", strings.Repeat("x", 4<<20)))
	for name, sent := range map[string]int{"before the layer": 0, "in the midst of the layer": 2 << 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reg := imagetest.Start(t)
			layer := static.NewLayer(stream, types.OCIUncompressedLayer)
			img := imagetest.Resolve(t, reg.Push(t, "x", imagetest.Image(t, v1.Config{}, layer)))
			digest, err := layer.Digest()
			must(t, err)
			reg.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, digest.Hex) {
					return false
				}
				_, _ = w.Write(stream[:sent])
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				return true
			}
			c := apptainer.Converter{Source: imagetest.Source(), Mksquashfs: toolThat(t, "echo 'FATAL ERROR: it does not want to' >&2; exit 1")}
			c.Source.Stall, c.Source.Transport = time.Hour, closing{http.DefaultTransport}
			failedConversion(t, c, img, false, "it does not want to")
		})
	}
}

func TestToolThatSucceedsBeforeItHasReadTheImageHasFailed(t *testing.T) {
	t.Parallel()
	for name, modified := range map[string]int64{
		"while the layer is read":   1, // a file that is older than the image
		"when it is read once more": 1_000_000_000,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := imagetest.Regular("a", strings.Repeat("x", 4<<20))
			file.ModTime = time.Unix(modified, 0)
			img := published(t, imagetest.Image(t, v1.Config{}, imagetest.GzipLayer(t, imagetest.TarStream(t, file))))
			// It leaves a file that looks like a file system.
			c := apptainer.Converter{Source: imagetest.Source(), Mksquashfs: toolThat(t, `head -c 100000 >/dev/null
while [ "$1" != -offset ]; do [ "$1" = -tar ] || out=${out:-$2}; shift; done
mkdir -p "$out.empty" && exec mksquashfs "$out.empty" "$out" -offset "$2" -noappend -quiet`)}
			failed := c.Convert(t.Context(), img, filepath.Join(t.TempDir(), "x.sif"), nil)
			imagetest.WantError(t, failed, true, "mksquashfs ended before it had read all")
		})
	}
}

// Errors that the image has not caused are transient.
func TestErrorsOfTheHostAreTransient(t *testing.T) {
	t.Parallel()
	img := published(t, imagetest.Tiny(t, "content"))
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for name, test := range map[string]struct {
		c         apptainer.Converter
		transient bool
		words     string
	}{
		"no directory for layers": {apptainer.Converter{TempDir: file}, true, "not a directory"},
		"no tool":                 {apptainer.Converter{Mksquashfs: "/nonexistent", Tar2sqfs: "none-such"}, true, "install squashfs-tools 4.5 or newer"},
		"an older tool":           {apptainer.Converter{Mksquashfs: oldMksquashfs(t), Tar2sqfs: "none-such"}, true, "or squashfs-tools-ng (/"},
		"a tool that was killed":  {apptainer.Converter{Mksquashfs: toolThat(t, "kill -KILL $$")}, true, "killed"},
		"a tool that crashed":     {apptainer.Converter{Mksquashfs: toolThat(t, "kill -SEGV $$")}, false, "segmentation fault"},
		"no thread for the tool":  {apptainer.Converter{Mksquashfs: toolThat(t, "echo 'FATAL ERROR: Failed to create thread: Resource temporarily unavailable' >&2; exit 1")}, true, "mksquashfs: resource temporarily"},
		"no room for its file":    {apptainer.Converter{Mksquashfs: toolThat(t, "echo 'Write failed because No space left on device' >&2; exit 1")}, true, "no space left"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.c.Source = imagetest.Source()
			failedConversion(t, test.c, img, test.transient, test.words)
		})
	}
}
