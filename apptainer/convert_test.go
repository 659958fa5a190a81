package apptainer_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/apptainer/sifconfig"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// unsquash lists a SIF's file system, as unsquashfs -lls does.
func unsquash(t *testing.T, sif string, args ...string) string {
	t.Helper()
	config, err := sifconfig.Read(sif)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unsquashfs", append([]string{"-o", strconv.FormatInt(config.Offset, 10)}, args...)...)
	cmd.Env = []string{"TZ=UTC"}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestSIFHoldsTheImageAndWhatApptainerNeeds(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	reg := imagetest.Start(t)
	config := v1.Config{
		Env:        []string{"PATH=/opt/bin:/bin", `GREETING=it's $HOME and "more"`, "odd.name=1"},
		Entrypoint: []string{"/entry", "a b"},
		Cmd:        []string{"it's"},
		Labels:     map[string]string{"maker": "us"},
	}
	suid := imagetest.Executable("suid", "#!")
	suid.Mode = 0o4755
	owned := imagetest.Regular("owned", "x")
	owned.Uid, owned.Gid = 1234, 5678
	img := imagetest.Image(t, config,
		imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Directory("d"), imagetest.Regular("d/gone", "1"), imagetest.Regular("kept", "lower"), suid, owned)),
		imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular("d/.wh.gone", ""), imagetest.Regular("d/new", "2"), imagetest.Hardlink("link", "kept"), imagetest.Symlink("s", "kept"))))
	path := filepath.Join(t.TempDir(), "x.sif")
	resolved := resolve(t, reg.Push(t, "x", img))
	if err := (apptainer.Converter{Registry: quick()}).Convert(t.Context(), resolved, path, nil); err != nil {
		t.Fatal(err)
	}
	list := unsquash(t, path, "-lls", path)
	for _, want := range []string{
		"squashfs-root/.singularity.d/env/10-docker2singularity.sh", "squashfs-root/.singularity.d/libs", "squashfs-root/.singularity.d/runscript",
		"squashfs-root/d/new", "squashfs-root/dev\n", "squashfs-root/proc\n", "squashfs-root/sys\n", "squashfs-root/etc/resolv.conf", "squashfs-root/s -> kept",
		"-rwsr-xr-x root/root ", "drwxrwxrwt root/root ", "1234/5678 ", "2001-09-09 01:46 squashfs-root/kept",
	} {
		if !strings.Contains(list, want) {
			t.Errorf("no %q in\n%s", want, list)
		}
	}
	if strings.Contains(list, "gone") || strings.Contains(list, ".wh.") {
		t.Errorf("hidden files in\n%s", list)
	}
	if got := unsquash(t, path, "-cat", path, "link"); got != "lower" {
		t.Errorf("the link reads %q", got)
	}
	got, err := sifconfig.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sifconfig.Config{Env: config.Env, Architecture: runtime.GOARCH, Offset: got.Offset}, got); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	checkScripts(t, path)
}

// checkScripts runs Apptainer's scripts of a SIF with a shell.
func checkScripts(t *testing.T, sif string) {
	t.Helper()
	env := unsquash(t, sif, "-cat", sif, ".singularity.d/env/10-docker2singularity.sh")
	out, err := exec.Command("/bin/sh", "-c", env+`/usr/bin/printf '%s|' "$GREETING" "$PATH"`).Output()
	if want := `it's $HOME and "more"|/opt/bin:/bin|`; err != nil || string(out) != want {
		t.Errorf("the environment's script gives %q, %v; want %q", out, err, want)
	}
	run := strings.ReplaceAll(unsquash(t, sif, "-cat", sif, ".singularity.d/runscript"), "exec ", "printf '%s|' ")
	for args, want := range map[string]string{"": "/entry|a b|it's|", "x": "/entry|a b|x|"} {
		out, err := exec.Command("/bin/sh", append([]string{"-c", run, "run"}, strings.Fields(args)...)...).Output()
		if err != nil || string(out) != want {
			t.Errorf("the runscript with %q gives %q, %v; want %q", args, out, err, want)
		}
	}
}

func TestEqualImagesGiveEqualFileSystems(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	reg := imagetest.Start(t)
	resolved := resolve(t, reg.Push(t, "x", imagetest.Image(t, v1.Config{Labels: map[string]string{"a": "1", "b": "2"}},
		imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular("a", strings.Repeat("a", 300_000)), imagetest.Hardlink("b", "a"), imagetest.Regular("c", "c"))))))
	var seen [2]string
	for i := range seen {
		path := filepath.Join(t.TempDir(), "x.sif")
		if err := (apptainer.Converter{Registry: quick(), Processors: i + 1}).Convert(t.Context(), resolved, path, nil); err != nil {
			t.Fatal(err)
		}
		seen[i] = unsquash(t, path, "-lls", path)
		for _, name := range []string{"a", "b", "c", ".singularity.d/labels.json"} {
			seen[i] += unsquash(t, path, "-cat", path, name)
		}
	}
	if diff := cmp.Diff(seen[0], seen[1]); diff != "" {
		t.Errorf("two conversions of one digest differ:\n%s", diff)
	}
}

func TestUncompressedAndRepeatedLayersAreRead(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	reg := imagetest.Start(t)
	plain := static.NewLayer(imagetest.TarStream(t, imagetest.Regular("a", "plain")), types.OCIUncompressedLayer)
	path := filepath.Join(t.TempDir(), "x.sif")
	img := resolve(t, reg.Push(t, "x", imagetest.Image(t, v1.Config{}, plain, imagetest.GzipLayer(t, imagetest.TarStream(t)), plain)))
	if err := (apptainer.Converter{Registry: quick()}).Convert(t.Context(), img, path, nil); err != nil {
		t.Fatal(err)
	}
	if got := unsquash(t, path, "-cat", path, "a"); got != "plain" {
		t.Errorf("the file reads %q", got)
	}
}

func TestProgressEndsWhole(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	reg := imagetest.Start(t)
	img := resolve(t, reg.Push(t, "x", imagetest.Image(t, v1.Config{}, imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular("a", "content"))))))
	var seen []apptainer.Progress
	err := apptainer.Converter{Registry: quick()}.Convert(t.Context(), img, filepath.Join(t.TempDir(), "x.sif"), func(p apptainer.Progress) {
		seen = append(seen, p)
	})
	if err != nil {
		t.Fatal(err)
	}
	last := seen[len(seen)-1]
	if seen[0].Stage != apptainer.Pulling || last.Stage != apptainer.Converting || last.Done != last.Total || last.Total == 0 {
		t.Errorf("progress %+v", seen)
	}
}

// failedConversion wants an error of the given words, and nothing left behind
// but, where it may pass, layers to go on with.
func failedConversion(t *testing.T, c apptainer.Converter, img apptainer.Image, transient bool, words string) {
	t.Helper()
	dir := t.TempDir()
	err := c.Convert(t.Context(), img, filepath.Join(dir, "x.sif"), nil)
	wantImageError(t, err, transient, words)
	wantLeft(t, dir, transient)
}

// wantLeft wants nothing in dir, or layers alone.
func wantLeft(t *testing.T, dir string, layers bool) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		if !layers || !strings.HasPrefix(e.Name(), "layers-") {
			t.Errorf("left behind: %s", e.Name())
		}
	}
}

func TestUnsupportedLayersAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		layer v1.Layer
		words string
	}{
		{"broken zstd", static.NewLayer([]byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0, 0, 0}, types.OCILayerZStd), "layer 2 of 2: "},
		{"foreign", static.NewLayer(imagetest.TarStream(t), types.DockerForeignLayer), "may not be distributed"},
		{"unknown", static.NewLayer([]byte("{}"), "application/x-model"), "its type application/x-model is not handled"},
		{"not a tar", static.NewLayer(bytes.Repeat([]byte("no tar"), 1000), types.DockerUncompressedLayer), "unreadable tar entry"},
		{"hostile link", imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Hardlink("a", "../../etc/shadow"))), `hard link to "etc/shadow", which does not exist`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			reg := imagetest.Start(t)
			img := tiny(t, "base")
			img, err := mutate.Append(img, mutate.Addendum{Layer: tt.layer})
			if err != nil {
				t.Fatal(err)
			}
			failedConversion(t, apptainer.Converter{Registry: quick()}, resolve(t, reg.Push(t, "x", img)), false, tt.words)
		})
	}
}

func TestImageOfAnotherPlatformIsRefused(t *testing.T) {
	t.Parallel()
	for platform, words := range map[string]string{
		"windows/" + runtime.GOARCH: "it is made for windows",
		"linux/s390x":               "it is made for linux/s390x, not for linux/" + runtime.GOARCH,
	} {
		reg := imagetest.Start(t)
		img := tiny(t, "x")
		config, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		config = config.DeepCopy()
		config.OS, config.Architecture, _ = strings.Cut(platform, "/")
		if img, err = mutate.ConfigFile(img, config); err != nil {
			t.Fatal(err)
		}
		failedConversion(t, apptainer.Converter{Registry: quick()}, resolve(t, reg.Push(t, "x", img)), false, words)
	}
}

func TestBombIsRefused(t *testing.T) {
	t.Parallel()
	reg := imagetest.Start(t)
	img := resolve(t, reg.Push(t, "x", imagetest.Image(t, v1.Config{}, imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular("zeros", strings.Repeat("\x00", 1<<20)))))))
	failedConversion(t, apptainer.Converter{Registry: quick(), MaxBytes: 1 << 19}, img, false, "unpacks to more than is allowed")
	failedConversion(t, apptainer.Converter{Registry: quick(), MaxEntries: 5}, img, false, "unpacks to more than is allowed")
}

// blobs are requests for layers and configurations.
func isBlob(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/")
}

func TestDamagedLayersAreRefused(t *testing.T) {
	t.Parallel()
	layer := imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular("a", "content")))
	digest, err := layer.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name      string
		answer    func(w http.ResponseWriter)
		transient bool
		words     string
	}{
		{"other content", func(w http.ResponseWriter) { _, _ = w.Write(bytes.Repeat([]byte("x"), 100)) }, false, "layer 1 of 1"},
		{"connection lost", func(w http.ResponseWriter) {
			_, _ = w.Write([]byte{0x1f, 0x8b, 8, 0, 0})
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, true, "broke off"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			reg := imagetest.Start(t)
			img := resolve(t, reg.Push(t, "x", imagetest.Image(t, v1.Config{}, layer)))
			reg.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
				if !isBlob(r) || !strings.HasSuffix(r.URL.Path, digest.Hex) {
					return false
				}
				tt.answer(w)
				return true
			}
			failedConversion(t, apptainer.Converter{Registry: quick()}, img, tt.transient, tt.words)
		})
	}
	t.Run("cut short but of the right digest", func(t *testing.T) {
		t.Parallel()
		blob, err := layer.Compressed()
		if err != nil {
			t.Fatal(err)
		}
		whole := new(bytes.Buffer)
		if _, err := whole.ReadFrom(blob); err != nil {
			t.Fatal(err)
		}
		reg := imagetest.Start(t)
		img, err := mutate.Append(tiny(t, "base"), mutate.Addendum{Layer: static.NewLayer(whole.Bytes()[:whole.Len()/2], types.DockerLayer)})
		if err != nil {
			t.Fatal(err)
		}
		failedConversion(t, apptainer.Converter{Registry: quick()}, resolve(t, reg.Push(t, "x", img)), false, "its content is cut short")
	})
	t.Run("of another diffID", func(t *testing.T) {
		t.Parallel()
		reg := imagetest.Start(t)
		img := imagetest.Image(t, v1.Config{}, layer)
		config, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		config = config.DeepCopy()
		config.RootFS.DiffIDs[0].Hex = strings.Repeat("0", 64)
		if img, err = mutate.ConfigFile(img, config); err != nil {
			t.Fatal(err)
		}
		failedConversion(t, apptainer.Converter{Registry: quick()}, resolve(t, reg.Push(t, "x", img)), false, "it unpacks to sha256:")
	})
}

func TestLayerThatStallsIsGivenUp(t *testing.T) {
	t.Parallel()
	reg := imagetest.Start(t)
	img := resolve(t, reg.Push(t, "x", imagetest.Image(t, v1.Config{}, imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular("a", "content"))))))
	var blobs atomic.Int32
	reg.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if !isBlob(r) || blobs.Add(1) == 1 { // the first is the configuration
			return false
		}
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return true
	}
	c := apptainer.Converter{Registry: quick()}
	c.Registry.Stall = 50 * time.Millisecond
	failedConversion(t, c, img, true, "does not answer")
}

func TestCancelledConversionLeavesItsLayersToTheNext(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	for _, stage := range []apptainer.Stage{apptainer.Pulling, apptainer.Converting} {
		reg := imagetest.Start(t)
		img := resolve(t, reg.Push(t, "x", imagetest.Image(t, v1.Config{}, imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular("a", strings.Repeat("content", 1<<20)))))))
		ctx, cancel := context.WithCancel(t.Context())
		dir := t.TempDir()
		path := filepath.Join(dir, "x.sif")
		c := apptainer.Converter{Registry: quick()}
		err := c.Convert(ctx, img, path, func(p apptainer.Progress) {
			if p.Stage == stage {
				cancel()
			}
		})
		cancel()
		var e *apptainer.ImageError
		if !errors.Is(err, context.Canceled) || !errors.As(err, &e) || !e.Transient() {
			t.Errorf("cancelled while %s: error %v, want the context's", stage, err)
		}
		wantLeft(t, dir, true)
		if err := c.Convert(t.Context(), img, path, nil); err != nil {
			t.Fatal(err)
		}
		if got := unsquash(t, path, "-cat", path, "a"); got != strings.Repeat("content", 1<<20) {
			t.Errorf("cancelled while %s, and gone on with: the file has %d bytes", stage, len(got))
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		wantLeft(t, dir, false)
	}
}

// A pull that breaks for good half way is gone on with from there.
func TestPullGoesOnWhereTheLastOneEnded(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	content := make([]byte, 8<<20)
	if _, err := rand.New(rand.NewSource(1)).Read(content); err != nil {
		t.Fatal(err)
	}
	stream := imagetest.TarStream(t, imagetest.Regular("a", string(content)))
	reg := imagetest.Start(t)
	layer := static.NewLayer(stream, types.OCIUncompressedLayer)
	img := resolve(t, reg.Push(t, "x", imagetest.Image(t, v1.Config{}, layer)))
	digest, err := layer.Digest()
	if err != nil {
		t.Fatal(err)
	}
	var away atomic.Bool
	var ranges []string // one pull at a time asks
	reg.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if !isBlob(r) || !strings.HasSuffix(r.URL.Path, digest.Hex) {
			return false
		}
		ranges = append(ranges, r.Header.Get("Range"))
		if !away.Load() {
			return false
		}
		if len(ranges) > 1 {
			w.WriteHeader(http.StatusBadGateway)
			return true
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(stream)))
		_, _ = w.Write(stream[:4<<20])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "x.sif")
	c := apptainer.Converter{Registry: quick()}
	for name, spoil := range map[string]func(blob string) error{
		"as it was left": func(string) error { return nil },
		"damaged since":  func(blob string) error { return os.WriteFile(blob, make([]byte, 1<<20), 0o600) },
		"too long":       func(blob string) error { return os.WriteFile(blob, make([]byte, 16<<20), 0o600) },
	} {
		away.Store(true)
		ranges = nil
		wantImageError(t, c.Convert(t.Context(), img, path, nil), true, "")
		left, err := filepath.Glob(filepath.Join(dir, "layers-*", "blobs", "sha256", "*"))
		if err != nil || len(left) != 1 {
			t.Fatalf("left %v, %v", left, err)
		}
		if err := spoil(left[0]); err != nil {
			t.Fatal(err)
		}
		away.Store(false)
		ranges = nil
		if err := c.Convert(t.Context(), img, path, nil); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if want := fmt.Sprintf("bytes=%d-%d", 4<<20, len(stream)-1); name == "as it was left" && (len(ranges) != 1 || ranges[0] != want) {
			t.Errorf("asked for %q, want %q", ranges, want)
		}
		if got := unsquash(t, path, "-cat", path, "a"); got != string(content) {
			t.Errorf("%s: the file is another", name)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		wantLeft(t, dir, false)
	}
}

func TestZstdLayersAreRead(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	var packed bytes.Buffer
	w, err := zstd.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	stream := imagetest.TarStream(t, imagetest.Regular("a", strings.Repeat("content", 1<<18)))
	if _, err := w.Write(stream); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(stream)
	for _, kind := range []types.MediaType{types.OCILayerZStd, "application/vnd.docker.image.rootfs.diff.tar.zstd", types.DockerLayer} {
		img, err := mutate.Append(tiny(t, "base"), mutate.Addendum{Layer: zstdLayer{
			Layer: static.NewLayer(packed.Bytes(), kind), diffID: v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])},
		}})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "x.sif")
		if err := (apptainer.Converter{Registry: quick()}).Convert(t.Context(), resolve(t, imagetest.Start(t).Push(t, "x", img)), path, nil); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if got := unsquash(t, path, "-cat", path, "a"); got != strings.Repeat("content", 1<<18) {
			t.Errorf("%s: the file has %d bytes", kind, len(got))
		}
	}
}

// zstdLayer knows what it unpacks to.
type zstdLayer struct {
	v1.Layer

	diffID v1.Hash
}

func (l zstdLayer) DiffID() (v1.Hash, error) { return l.diffID, nil }

func TestExistingFileIsLeftAlone(t *testing.T) {
	t.Parallel()
	reg := imagetest.Start(t)
	img := resolve(t, reg.Push(t, "x", tiny(t, "x")))
	path := filepath.Join(t.TempDir(), "x.sif")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (apptainer.Converter{Registry: quick()}).Convert(t.Context(), img, path, nil); !errors.Is(err, os.ErrExist) {
		t.Errorf("error %v, want one that the file exists", err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "mine" {
		t.Errorf("the file holds %q, %v", got, err)
	}
}

// A small tmpfs is a disk that fills up.
func TestFullDiskIsSaidInWords(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	reg := imagetest.Start(t)
	random := make([]byte, 3<<20)
	for i := range random {
		random[i] = byte(i * i >> 7 * i >> 3)
	}
	img := resolve(t, reg.Push(t, "x", imagetest.Image(t, v1.Config{}, static.NewLayer(imagetest.TarStream(t, imagetest.Regular("a", string(random))), types.OCIUncompressedLayer))))
	for name, size := range map[string]string{"layers": "1m", "squashfs": "64k"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			testenv.SmallDisk(t, dir, "size="+size)
			c := apptainer.Converter{Registry: quick()}
			if name == "squashfs" {
				c.TempDir = t.TempDir()
			}
			err := c.Convert(t.Context(), img, filepath.Join(dir, "x.sif"), nil)
			wantImageError(t, err, true, "no space left")
			if !errors.Is(err, syscall.ENOSPC) { // by which callers know it
				t.Errorf("%v is not ENOSPC", err)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}
