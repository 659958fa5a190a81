package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// fileImages brings images from files into a cache that a group shares.
func fileImages(dir string) (*Images, error) {
	content, err := cache.Open(filepath.Join(dir, "cache"), cache.Options{Group: true, Settle: -1})
	if err != nil {
		return nil, err
	}
	own := filepath.Join(dir, fmt.Sprint("user-", os.Geteuid()))
	return &Images{
		Cache: content, Kept: Records(filepath.Join(own, "kept")), References: References{Dir: filepath.Join(own, "names")}, AtOnce: 2, Now: time.Now,
		Converter: apptainer.Converter{Source: source.Source{OpenFile: source.FilesBelow("/"), RetryDelay: time.Millisecond}},
	}, nil
}

func stageFile(ctx context.Context, im *Images, image string) (string, error) {
	inputs, err := im.Stage(ctx, codalab.RunBundle{UUID: run1, OwnerID: "1"}, image, "", "", &transfer.Item{})
	return inputs.SIF, err
}

// writeImage writes an image as docker save does, and as a layout.
func writeImage(t *testing.T, dir, content string) (archive, blobs string) {
	t.Helper()
	img := imagetest.Tiny(t, content)
	archive = filepath.Join(dir, content+".tar")
	tag, err := name.NewTag("lab/" + content)
	must(t, err)
	must(t, tarball.WriteToFile(archive, tag, img))
	p, err := layout.Write(filepath.Join(dir, content), empty.Index)
	must(t, err)
	must(t, p.AppendImage(img))
	return archive, filepath.Join(dir, content, "blobs", "sha256")
}

// openTempDir returns a TempDir that other users may enter.
func openTempDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	return dir
}

// sharedWithGroup reports whether the group may enter the directory of a SIF.
func sharedWithGroup(t *testing.T, sif string) bool {
	t.Helper()
	info, err := os.Stat(filepath.Dir(sif))
	must(t, err)
	return info.Mode().Perm()&0o050 == 0o050
}

func chmodAll(t *testing.T, dir string, mode os.FileMode) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		must(t, os.Chmod(filepath.Join(dir, e.Name()), mode))
	}
}

func TestImageOfAClosedFileIsNotSharedWithTheGroup(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	dir := openTempDir(t)
	archive, blobs := writeImage(t, dir, "x")
	im, err := fileImages(dir)
	must(t, err)
	for image, closeUp := range map[string]func(mode os.FileMode){
		"docker-archive:" + archive:                func(mode os.FileMode) { must(t, os.Chmod(archive, mode)) },
		"oci:" + filepath.Dir(filepath.Dir(blobs)): func(mode os.FileMode) { chmodAll(t, blobs, mode) },
	} {
		closeUp(0o600)
		// Each has its own cached answers, which count for a minute.
		closed, err := stageFile(t.Context(), im, image)
		must(t, err)
		if sharedWithGroup(t, closed) {
			t.Errorf("%s: the group may read what it may not read where it lies", image)
		}
		closeUp(0o644)
		im, err = fileImages(dir)
		must(t, err)
		open, err := stageFile(t.Context(), im, image)
		if must(t, err); !sharedWithGroup(t, open) || open == closed {
			t.Errorf("%s: what all may read is not shared", image)
		}
	}
}

// All bundles of this user's bridge may run in a kept image, but other members of the cache's group
// can read neither its SIF nor the file that it was made of.
func TestKeptCopyOfAClosedFileIsNotSharedWithTheGroup(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	dir := openTempDir(t)
	archive, _ := writeImage(t, dir, "x")
	im, err := fileImages(dir)
	must(t, err)
	first, err := stageFile(t.Context(), im, "docker-archive:"+archive)
	must(t, err)
	sif := filepath.Join(dir, "x.sif")
	data, err := os.ReadFile(first)
	must(t, errors.Join(err, os.WriteFile(sif, data, 0o600)))
	im.Offline = true
	for _, file := range []string{sif, "docker-archive:" + archive} {
		path := file[strings.IndexByte(file, '/'):]
		for _, test := range []struct {
			mode   os.FileMode
			closed bool
		}{{0o600, true}, {0o644, false}, {0o600, true}} {
			must(t, os.Chmod(path, test.mode))
			im, err := fileImages(dir) // without cached answers
			must(t, err)
			im.Offline = true
			w := wantedImage(t, file)
			w.Reference = wantedImage(t, "lab/x:1").From
			kept, err := im.Keep(t.Context(), w, func(transfer.Progress) {})
			if must(t, err); kept.Closed != test.closed || kept.Private {
				t.Errorf("%s of mode %o: %+v", file, test.mode, kept)
			}
			got, err := stageFile(t.Context(), im, "lab/x:1")
			if must(t, err); sharedWithGroup(t, got) == test.closed {
				t.Errorf("%s of mode %o is shared: %v", file, test.mode, !test.closed)
			}
			must(t, im.Repin(t.Context()))
			pins, err := im.Cache.Pins()
			must(t, err)
			holder := im.Kept.Holder(kept.Reference, kept.Architecture)
			if pins = slices.DeleteFunc(pins, func(p cache.Pin) bool { return p.Holder != holder }); len(pins) != 1 {
				t.Errorf("%s of mode %o: its pins are %v", file, test.mode, pins)
			}
		}
	}
}

// memberFor is the variable that makes the test binary another member of the group: DIRECTORY
// IMAGE.
const memberFor = "IMAGES_TEST_MEMBER"

// stageAsMember prints the path of an image's SIF, or the error.
func stageAsMember(words string) {
	dir, image, _ := strings.Cut(words, " ")
	im, err := fileImages(dir)
	sif := ""
	if err == nil {
		sif, err = stageFile(context.Background(), im, image)
	}
	if err != nil {
		sif = err.Error()
	}
	fmt.Println(sif)
}

// Root and another user share a cache. The other user can read neither a file that only root may
// read, nor the SIF that root made of it. Its own file of the same image gets another SIF.
func TestMemberOfTheGroupGetsWhatItMayReadAndNothingElse(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	const group = 4712 // any
	dir := testenv.SharedDir(t)
	must(t, errors.Join(os.Chmod(dir, 0o777), os.Mkdir(filepath.Join(dir, "cache"), 0o700)))
	must(t, errors.Join(os.Chown(filepath.Join(dir, "cache"), 0, group), os.Chmod(filepath.Join(dir, "cache"), 0o770|os.ModeSetgid)))
	program := filepath.Join(dir, "test")
	testenv.CopyProgram(t, program)
	credential := &syscall.Credential{Uid: 60003, Gid: 60003, Groups: []uint32{group}}
	asMember := func(image string) string {
		t.Helper()
		member := testenv.AgainAs(t, program, credential, memberFor+"="+dir+" "+image)
		out, err := io.ReadAll(member)
		must(t, errors.Join(err, member.Wait()))
		return strings.TrimSpace(string(out))
	}
	mayRead := func(path string) bool {
		t.Helper()
		cat := exec.CommandContext(t.Context(), "cat", path)
		cat.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
		return cat.Run() == nil
	}
	archive, _ := writeImage(t, dir, "x")
	copied := filepath.Join(dir, "copy.tar")
	data, err := os.ReadFile(archive)
	must(t, errors.Join(err, os.WriteFile(copied, data, 0o600), os.Chown(copied, int(credential.Uid), -1), os.Chmod(archive, 0o600)))
	im, err := fileImages(dir)
	must(t, err)

	roots, err := stageFile(t.Context(), im, "docker-archive:"+archive)
	if must(t, err); mayRead(roots) {
		t.Error("the member reads what is made of a file that it may not read")
	}
	if got := asMember("docker-archive:" + archive); !strings.Contains(got, "permission denied") {
		t.Errorf("the member got %q", got)
	}
	if got := asMember("docker-archive:" + copied); got == roots || !mayRead(got) {
		t.Errorf("the member has %q, root %q", got, roots)
	}
	must(t, errors.Join(os.Chown(archive, 0, group), os.Chmod(archive, 0o640)))
	if im, err = fileImages(dir); err != nil {
		t.Fatal(err)
	}
	shared, err := stageFile(t.Context(), im, "docker-archive:"+archive)
	if must(t, err); shared == roots || !mayRead(shared) {
		t.Errorf("what the group may read is at %s, and is not shared", shared)
	}
	if got := asMember("docker-archive:" + archive); got != shared {
		t.Errorf("the member got %q, want %s", got, shared)
	}
}

func TestMain(m *testing.M) {
	if words := os.Getenv(memberFor); words != "" {
		stageAsMember(words)
		os.Exit(0)
	}
	os.Exit(m.Run())
}
