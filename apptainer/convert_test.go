package apptainer_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/apptainer/sifconfig"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// unsquash lists a SIF's file system, as unsquashfs -lls does.
func unsquash(t *testing.T, sif string, args ...string) string {
	t.Helper()
	config, err := sifconfig.Read(sif)
	must(t, err)
	cmd := exec.Command("unsquashfs", append([]string{"-o", strconv.FormatInt(config.Offset, 10)}, args...)...)
	cmd.Env = []string{"TZ=UTC"}
	out, err := cmd.Output()
	must(t, err)
	return string(out)
}

func TestSIFHoldsTheImageAndWhatApptainerNeeds(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
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
	resolved := published(t, img)
	path := converted(t, apptainer.Converter{}, resolved)
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
	must(t, err)
	if diff := cmp.Diff(sifconfig.Config{Env: config.Env, Architecture: runtime.GOARCH, Offset: got.Offset, Others: got.Others}, got); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	sif, err := os.ReadFile(path)
	must(t, err)
	if others := sif[got.Others.Offset:][:got.Others.Size]; !bytes.HasPrefix(others, []byte("owned\x00")) {
		t.Errorf("the files of other owners begin with %q", others[:min(len(others), 100)])
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
	resolved := published(t, imagetest.Image(t, v1.Config{Labels: map[string]string{"a": "1", "b": "2"}},
		imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular("a", strings.Repeat("a", 300_000)), imagetest.Hardlink("b", "a"), imagetest.Regular("c", "c")))))
	var seen [2]string
	for i := range seen {
		path := converted(t, apptainer.Converter{Processors: i + 1}, resolved)
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
	plain := static.NewLayer(imagetest.TarStream(t, imagetest.Regular("a", "plain")), types.OCIUncompressedLayer)
	img := published(t, imagetest.Image(t, v1.Config{}, plain, imagetest.GzipLayer(t, imagetest.TarStream(t)), plain))
	path := converted(t, apptainer.Converter{}, img)
	if got := unsquash(t, path, "-cat", path, "a"); got != "plain" {
		t.Errorf("the file reads %q", got)
	}
}

func TestProgressEndsAtItsTotal(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	img := published(t, imagetest.Image(t, v1.Config{}, imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular("a", "content")))))
	var seen []apptainer.Progress
	err := apptainer.Converter{Source: imagetest.Source()}.Convert(t.Context(), img, filepath.Join(t.TempDir(), "x.sif"), func(p apptainer.Progress) {
		seen = append(seen, p)
	})
	must(t, err)
	last := seen[len(seen)-1]
	if seen[0].Stage != apptainer.Pulling || last.Stage != apptainer.Converting || last.Done != last.Total || last.Total == 0 {
		t.Errorf("progress %+v", seen)
	}
}

// published pushes an image to a new registry, and resolves it.
func published(t *testing.T, img v1.Image) source.Image {
	t.Helper()
	return imagetest.Resolve(t, imagetest.Start(t).Push(t, "x", img))
}

// converted converts an image from a registry, and returns the path of the SIF.
func converted(t *testing.T, c apptainer.Converter, img source.Image) string {
	t.Helper()
	c.Source = imagetest.Source()
	path := filepath.Join(t.TempDir(), "x.sif")
	must(t, c.Convert(t.Context(), img, path, nil))
	return path
}

// failedConversion fails the test unless a conversion fails with these words and leaves no files,
// or only layers if the error is transient.
func failedConversion(t *testing.T, c apptainer.Converter, img source.Image, transient bool, words string) {
	t.Helper()
	dir := t.TempDir()
	err := c.Convert(t.Context(), img, filepath.Join(dir, "x.sif"), nil)
	imagetest.WantError(t, err, transient, words)
	wantLeft(t, dir, transient)
}

// wantLeft fails the test unless dir is empty, or has only layers.
func wantLeft(t *testing.T, dir string, layers bool) {
	t.Helper()
	left, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range left {
		if !layers || !strings.HasPrefix(e.Name(), "layers-") {
			t.Errorf("left behind: %s", e.Name())
		}
	}
}

func TestZstdLayersAreRead(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	stream := imagetest.TarStream(t, imagetest.Regular("a", strings.Repeat("content", 1<<18)))
	packed := zstandard(t, stream)
	for _, kind := range []types.MediaType{types.OCILayerZStd, "application/vnd.docker.image.rootfs.diff.tar.zstd", types.DockerLayer} {
		path := converted(t, apptainer.Converter{}, published(t, blobImage(t, packed, kind, stream)))
		if got := unsquash(t, path, "-cat", path, "a"); got != strings.Repeat("content", 1<<18) {
			t.Errorf("%s: the file has %d bytes", kind, len(got))
		}
	}
}

func TestExistingFileIsLeftAlone(t *testing.T) {
	t.Parallel()
	img := published(t, imagetest.Tiny(t, "x"))
	path := filepath.Join(t.TempDir(), "x.sif")
	must(t, os.WriteFile(path, []byte("mine"), 0o600))
	if err := (apptainer.Converter{Source: imagetest.Source()}).Convert(t.Context(), img, path, nil); !errors.Is(err, os.ErrExist) {
		t.Errorf("error %v, want one that the file exists", err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "mine" {
		t.Errorf("the file holds %q, %v", got, err)
	}
}

// A small tmpfs is a disk that fills up.
func TestFullDiskIsReportedInWords(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	random := make([]byte, 3<<20)
	for i := range random {
		random[i] = byte(i * i >> 7 * i >> 3)
	}
	img := published(t, imagetest.Image(t, v1.Config{}, static.NewLayer(imagetest.TarStream(t, imagetest.Regular("a", string(random))), types.OCIUncompressedLayer)))
	for name, size := range map[string]string{"layers": "1m", "squashfs": "64k"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			testenv.SmallDisk(t, dir, "size="+size)
			c := apptainer.Converter{Source: imagetest.Source()}
			if name == "squashfs" {
				c.TempDir = t.TempDir()
			}
			err := c.Convert(t.Context(), img, filepath.Join(dir, "x.sif"), nil)
			imagetest.WantError(t, err, true, "no space left")
			if !errors.Is(err, syscall.ENOSPC) { // callers recognize it by this
				t.Errorf("%v is not ENOSPC", err)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

func TestImagesInFilesAreConverted(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	dir := t.TempDir()
	img := imagetest.Image(t, v1.Config{Env: []string{"A=b"}},
		imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular("f", "lower"))), imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular("g", "upper"))))
	for where, name := range imagetest.Everywhere(t, dir, img) {
		src := source.Source{OpenFile: source.FilesBelow(dir), Private: imagetest.Loopback()}
		resolved, err := src.Resolve(t.Context(), imagetest.Reference(t, name))
		if err != nil {
			t.Fatal(where, err)
		}
		path := filepath.Join(t.TempDir(), "x.sif")
		if err := (apptainer.Converter{Source: src}).Convert(t.Context(), resolved, path, nil); err != nil {
			t.Fatal(where, err)
		}
		if got := unsquash(t, path, "-cat", path, "f", "g"); got != "lowerupper" {
			t.Errorf("%s: it holds %q", where, got)
		}
		src.OpenFile = source.FilesBelow(filepath.Dir(path))
		ready, err := src.Resolve(t.Context(), imagetest.Reference(t, path))
		if err != nil || ready.Digest != "" || ready.Reference.Path() != path {
			t.Errorf("%s: the SIF resolves to %+v, %v", where, ready, err)
		}
		err = (apptainer.Converter{Source: src}).Convert(t.Context(), ready, path+"2", nil)
		imagetest.WantError(t, err, false, "SIF")
		src.Architecture = "s390x"
		_, err = src.Resolve(t.Context(), imagetest.Reference(t, path))
		imagetest.WantError(t, err, false, "it is made for linux/"+runtime.GOARCH+", not for linux/s390x")
	}
}

// Docker makes images of up to 127 layers.
func TestImageOfManyLayersIsConverted(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	const n = 127
	streams := make([][]byte, n)
	for i := range streams {
		files := []imagetest.File{imagetest.Regular(fmt.Sprintf("d/f%d", i), strconv.Itoa(i)), imagetest.Regular("d/same", strconv.Itoa(i))}
		if i%2 == 1 {
			files = append(files, imagetest.Regular(fmt.Sprintf("d/.wh.f%d", i-1), ""), imagetest.Hardlink(fmt.Sprintf("d/l%d", i), "d/same"))
		}
		streams[i] = imagetest.TarStream(t, files...)
	}
	sif := converted(t, apptainer.Converter{}, published(t, imageOf(t, streams...)))
	list := unsquash(t, sif, "-l", sif, "d")
	for i := range n {
		there := strings.Contains(list, fmt.Sprintf("/d/f%d\n", i))
		if want := i%2 == 1 || i == n-1; there != want {
			t.Errorf("f%d is there: %v", i, there)
		}
	}
	if got := unsquash(t, sif, "-cat", sif, "d/same") + " " + unsquash(t, sif, "-cat", sif, "d/l125"); got != "126 125" {
		t.Errorf("the files read %q", got)
	}
}

// An image may contain one program, or nothing. Only running it shows whether it can run a command.
func TestImageWithoutShellOrLibrariesIsConverted(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	for name, streams := range map[string][][]byte{
		"one program":      {imagetest.TarStream(t, imagetest.Executable("hello", "\x7fELF"))},
		"nothing in it":    {imagetest.TarStream(t)},
		"no layers at all": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sif := converted(t, apptainer.Converter{}, published(t, imageOf(t, streams...)))
			if _, err := sifconfig.Read(sif); err != nil {
				t.Error(err)
			}
		})
	}
}

var must = testenv.Must
