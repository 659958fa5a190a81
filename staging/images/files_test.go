package images

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/apptainer/sifconfig"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// fileSite is a site with images in <dir>/images, for everybody, and in <dir>/data, for ann.
type fileSite struct {
	*testing.T
	*Images
	dir string
}

func newFileSite(t *testing.T) fileSite {
	t.Helper()
	testenv.Containers(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	s := fileSite{t, &Images{}, dir}
	for _, sub := range []string{"data", "images", "shared", "secret"} {
		must(t, os.Mkdir(s.at(sub), 0o755))
	}
	s.Files = &Files{
		Roots: []string{s.at("images")}, Hidden: []string{s.at("shared"), "/proc"}, Records: s.at("shared/images/files"),
		OwnerRoots: func(_ context.Context, owner string) ([]string, error) {
			if owner != "ann" {
				return nil, nil
			}
			return []string{s.at("data")}, nil
		},
	}
	return s
}

func (s fileSite) at(name string) string { return filepath.Join(s.dir, name) }

func (s fileSite) write(files map[string]string) {
	s.Helper()
	for name, text := range files {
		must(s.T, errors.Join(os.MkdirAll(filepath.Dir(s.at(name)), 0o755), os.WriteFile(s.at(name), []byte(text), 0o644)))
	}
}

// sif makes a SIF of a real image.
func (s fileSite) sif(name, architecture string) {
	t := s.T
	t.Helper()
	ref, err := source.ParseReference(imagetest.Start(t).Push(t, "x:1", tinyImage(t, name, architecture)))
	must(t, err)
	c := apptainer.Converter{Source: imagetest.Source()}
	c.Source.Architecture = architecture
	resolved, err := c.Source.Resolve(t.Context(), ref)
	must(t, err)
	must(t, c.Convert(t.Context(), resolved, s.at(name), nil))
}

func (s fileSite) stage(owner, name string) (spool.Inputs, error) {
	s.Helper()
	return s.Stage(s.Context(), codalab.RunBundle{UUID: run1, OwnerID: owner}, name, "", "", &transfer.Item{})
}

func TestSIFIsUsedWhereItLies(t *testing.T) {
	t.Parallel()
	s := newFileSite(t)
	s.sif("images/x.sif", runtime.GOARCH)
	must(t, os.Symlink("images", s.at("pictures")))
	s.Files.Roots = append(s.Files.Roots, s.at("pictures"))
	inputs, err := s.stage("bob", s.at("pictures/x.sif"))
	must(t, err)
	info, err := os.Stat(s.at("images/x.sif"))
	must(t, err)
	file := inputs.SIFFile
	if inputs.SIF != s.at("images/x.sif") || file == nil || file.Size != info.Size() || file.Modified != info.ModTime().UnixNano() {
		t.Errorf("%+v, %+v", inputs, file)
	}
	if !strings.HasPrefix(inputs.PinnedReference, s.at("pictures/x.sif")+"@sha256:") {
		t.Errorf("docker_image is %q", inputs.PinnedReference)
	}
	// A bundle may use the value of docker_image as a name until the file changes.
	again, err := s.stage("bob", inputs.PinnedReference)
	if err != nil || again.PinnedReference != inputs.PinnedReference {
		t.Errorf("%+v, %v", again, err)
	}
	must(t, os.Remove(s.at("images/x.sif")))
	s.sif("images/y.sif", runtime.GOARCH)
	must(t, os.Rename(s.at("images/y.sif"), s.at("images/x.sif")))
	_, err = s.stage("bob", inputs.PinnedReference)
	refused(t, err, "it is not the file with that digest any more: its digest is sha256:", false)
}

// The digest of a file is read again, by this process or another, only if the file has changed.
func TestDigestOfASIFIsReadOnce(t *testing.T) {
	t.Parallel()
	s := newFileSite(t)
	s.sif("images/x.sif", runtime.GOARCH)
	first, err := s.stage("ann", s.at("images/x.sif"))
	must(t, err)
	d := &transfer.Transfer{}
	other := &Files{Roots: s.Files.Roots, Records: s.Files.Records}
	found, err := other.read(s.at("images/x.sif"), other.Roots, d)
	if err != nil || !strings.HasSuffix(first.PinnedReference, "@"+found.Digest) || d.Done() != 0 {
		t.Errorf("%+v, %v, %d bytes read", found, err, d.Done())
	}
	must(t, os.Chtimes(s.at("images/x.sif"), time.Time{}, time.Unix(1e9, 0)))
	if found, err = other.read(s.at("images/x.sif"), other.Roots, d); err != nil || d.Done() != found.Size {
		t.Errorf("%+v, %v, %d bytes read", found, err, d.Done())
	}
}

func TestSIFsThatAreRefused(t *testing.T) {
	t.Parallel()
	s := newFileSite(t)
	s.sif("data/ann.sif", runtime.GOARCH)
	s.sif("images/z.sif", "s390x")
	s.sif("shared/own.sif", runtime.GOARCH)
	s.write(map[string]string{"images/text.sif": "no SIF at all", "secret/s.sif": "x"})
	must(t, errors.Join(os.Mkdir(s.at("images/dir.sif"), 0o755), os.Symlink(s.at("secret/s.sif"), s.at("images/out.sif")),
		os.Symlink(s.at("shared/own.sif"), s.at("images/own.sif"))))
	for name, want := range map[string]string{
		"images/text.sif": "read SIF",
		"images/z.sif":    "it is made for linux/s390x, not for linux/" + runtime.GOARCH,
		"images/dir.sif":  "it is not a file",
		"images/out.sif":  "not under a directory that this site takes images from (",
		"images/own.sif":  "not under a directory",
		"secret/s.sif":    "not under a directory",
		"data/ann.sif":    "not under a directory",
	} {
		_, err := s.stage("bob", s.at(name))
		refused(t, err, "image "+s.at(name)+": ", false)
		refused(t, err, want, false)
	}
	if _, err := s.stage("ann", s.at("data/ann.sif")); err != nil {
		t.Errorf("below a root of ann's links: %v", err)
	}
	_, err := s.stage("ann", s.at("images/late.sif"))
	var e *transfer.Error
	if !errors.As(err, &e) || !e.Transient() || !strings.Contains(e.Error(), "it is not there") {
		t.Errorf("one that may be on its way: %v", err)
	}
	s.Files = nil
	_, err = s.stage("ann", s.at("images/x.sif"))
	refused(t, err, "this site does not use SIFs in place", false)
}

func TestCallerThatLeavesDoesNotEndTheReadingOfASIF(t *testing.T) {
	t.Parallel()
	s := newFileSite(t)
	s.sif("images/x.sif", runtime.GOARCH)
	s.Files.OwnerRoots = nil
	gone, leave := context.WithCancel(t.Context())
	leave()
	_, err := s.Files.findSIF(gone, "ann", s.at("images/x.sif"), &transfer.Item{})
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := s.stage("ann", s.at("images/x.sif")); err != nil {
		t.Error(err)
	}
}

// Archives are opened only below the roots that every bundle may use, and not through a link to the
// bridge's own files.
func TestArchivesAreOpenedBelowTheRootsAlone(t *testing.T) {
	t.Parallel()
	s := newFileSite(t)
	s.write(map[string]string{"images/a.tar": "archive", "images/own/b.tar": "own", "secret/c.tar": "secret"})
	must(t, errors.Join(os.Symlink("own/b.tar", s.at("images/inner.tar")), os.Symlink(s.at("secret/c.tar"), s.at("images/outer.tar"))))
	files := s.Files
	files.Hidden = append(files.Hidden, s.at("images/own"))
	f, err := files.Open(s.at("images/a.tar"))
	must(t, err)
	must(t, f.Close())
	for _, name := range []string{"images/own/b.tar", "images/inner.tar", "images/outer.tar", "secret/c.tar", "data/x.tar"} {
		if f, err := files.Open(s.at(name)); err == nil {
			t.Errorf("%s was opened: %v", name, f.Close())
		}
	}
}

// A site without internet may name a SIF or an archive for its default image.
func TestCopyOfASIFIsKeptUnderAName(t *testing.T) {
	t.Parallel()
	s := newFileSite(t)
	s.sif("images/x.sif", runtime.GOARCH)
	s.sif("images/z.sif", "s390x")
	content, err := cache.Open(s.at("cache"), cache.Options{Settle: -1})
	must(t, err)
	im := &Images{Cache: content, Kept: Records(s.at("kept")), References: References{Dir: s.at("names")}, Offline: true, AtOnce: 2, Now: time.Now}
	keep := func(file, as string) (KeptImage, error) {
		w := Wanted{By: "ann"}
		w.From, err = source.ParseReference(s.at(file))
		must(t, err)
		if as != "" {
			w.Reference, err = source.ParseReference(as)
			must(t, err)
		}
		return im.Keep(t.Context(), w, func(transfer.Progress) {})
	}
	kept, err := keep("images/x.sif", "codalab/default-cpu")
	must(t, err)
	must(t, os.Remove(s.at("images/x.sif")))
	inputs, err := im.Stage(t.Context(), codalab.RunBundle{UUID: run1}, "codalab/default-cpu:latest", "", "", &transfer.Item{})
	must(t, err)
	if config, err := sifconfig.Read(inputs.SIF); err != nil || config.Architecture != runtime.GOARCH || inputs.PinnedReference != "codalab/default-cpu@"+kept.Digest {
		t.Errorf("%+v, %+v, %v", inputs, config, err)
	}
	_, err = keep("images/z.sif", "codalab/default-cpu")
	refused(t, err, "it is made for linux/s390x, not for linux/"+runtime.GOARCH, false)
	s.sif("images/y.sif", runtime.GOARCH)
	_, err = keep("images/y.sif", "")
	refused(t, err, "a SIF is used in place", false)
}
