package inputs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging/results"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

const run1 = "0x00000000000000000000000000000001"

// keptSite is a shared disk that keeps the results of run1, and the server with their
// listing.
type keptSite struct {
	layout spool.Layout
	server *directoryServer
}

// keep keeps results of these files, as for write.
func keep(t *testing.T, files map[string]string) keptSite {
	t.Helper()
	s := keptSite{spool.Layout(t.TempDir()), &directoryServer{bundles: t.TempDir()}}
	dir := s.layout.RunDir(run1, "1-b1")
	for _, dir := range append(s.layout.Directories(), dir) {
		must(t, os.MkdirAll(dir, 0o700))
	}
	write(t, dir, files)
	c := results.Collector{Contents: s.server, Layout: s.layout, Now: time.Now}
	_, err := c.Collect(t.Context(), codalab.RunBundle{UUID: run1}, dir, spool.ResultsKeep, func(string) {})
	must(t, err)
	return s
}

// dependencies brings inputs to a cache, which is on a disk of its own.
func (s keptSite) dependencies(t *testing.T) *Dependencies {
	t.Helper()
	content, err := cache.Open(filepath.Join(t.TempDir(), "cache"), cache.Options{})
	must(t, err)
	return &Dependencies{Contents: s.server, Cache: content, Layout: s.layout, AtOnce: 1}
}

// stageOne stages a dependency and returns its path.
func stageOne(t *testing.T, d *Dependencies, dep codalab.Dependency) (string, error) {
	t.Helper()
	found, err := d.Stage(t.Context(), codalab.RunBundle{}, codalab.RunDependency{Dependency: dep}, "", &transfer.Item{})
	return found.Source, err
}

// directoryServer serves and takes contents as a server does, from and to
// directories.
type directoryServer struct {
	bundles string
	fetched atomic.Int64
	// listings counts the requests for a kept.txt.
	listings atomic.Int64
}

func (s *directoryServer) path(t codalab.Target) string {
	return filepath.Join(s.bundles, t.BundleUUID, t.Subpath)
}

func (s *directoryServer) ContentsInfo(_ context.Context, t codalab.Target, _ int) (codalab.TargetInfo, error) {
	if t.Subpath == "kept.txt" {
		s.listings.Add(1)
	}
	info, err := os.Stat(s.path(t))
	if err != nil {
		return codalab.TargetInfo{}, &codalab.Error{Status: 404, Message: "not found"}
	}
	kind := codalab.TargetFile
	if info.IsDir() {
		kind = codalab.TargetDirectory
	}
	return codalab.TargetInfo{Type: kind, Size: info.Size(), Perm: int(info.Mode().Perm())}, nil
}

func (s *directoryServer) OpenContents(ctx context.Context, t codalab.Target, part *client.Range) (*client.Contents, error) {
	s.fetched.Add(1)
	info, err := os.Stat(s.path(t))
	if err == nil && part != nil && part.Offset >= info.Size() {
		return nil, &codalab.Error{Status: 416, Message: "Requested Range Not Satisfiable"}
	}
	if err != nil {
		return nil, &codalab.Error{Method: "GET", Status: 404, Message: "Path '" + t.Subpath + "' in bundle " + t.BundleUUID + " not found"}
	}
	if !info.IsDir() {
		f, err := os.Open(s.path(t))
		return &client.Contents{ReadCloser: f, Type: codalab.TargetFile}, err
	}
	root, err := os.OpenRoot(s.path(t))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = tarstream.Pack(ctx, &b, root, ".", tarstream.PackOptions{})
	return &client.Contents{ReadCloser: io.NopCloser(&b), Type: codalab.TargetDirectory}, errors.Join(err, root.Close())
}

func (s *directoryServer) UploadContents(ctx context.Context, uuid string, _ client.UploadOptions, body io.Reader) error {
	dir := filepath.Join(s.bundles, uuid)
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	_, err = tarstream.Unpack(ctx, body, root, tarstream.Limits{})
	return errors.Join(err, root.Close())
}

// write makes files, and symbolic links where a text begins with "->".
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if target, ok := strings.CutPrefix(text, "->"); ok {
			must(t, os.Symlink(target, path))
		} else {
			must(t, os.WriteFile(path, []byte(text), 0o644))
		}
	}
}

// While the shared disk is not mounted, its kept results are unknown.
func TestListingDoesNotReplaceResultsOnADiskThatIsDown(t *testing.T) {
	t.Parallel()
	r := keep(t, map[string]string{"stdout": "o", "model": "weights"})
	s := r.dependencies(t)
	in := codalab.Dependency{ParentUUID: run1, ChildPath: "in"}
	unmounted := string(r.layout) + "-unmounted"
	must(t, errors.Join(os.Rename(string(r.layout), unmounted), os.Mkdir(string(r.layout), 0o700)))
	source, err := stageOne(t, s, in)
	var e *transfer.Error
	if !errors.As(err, &e) || !e.Transient() || !e.Outage() || !strings.Contains(err.Error(), "find the shared disk") {
		t.Errorf("seen at %q, %v; want an error that passes with the outage", source, err)
	}
	must(t, errors.Join(os.Remove(string(r.layout)), os.Rename(unmounted, string(r.layout))))
	if source, err := stageOne(t, s, in); err != nil || source != r.layout.KeptDir(run1) {
		t.Errorf("seen at %q, %v", source, err)
	}
}

func TestListingDoesNotReplaceResultsThatWereRemoved(t *testing.T) {
	t.Parallel()
	r := keep(t, map[string]string{"stdout": "o", "model": "weights"})
	if removed, err := (spool.Disk{Layout: r.layout}).RemoveKeptResults(spool.KeptResults{Name: run1}, func() (bool, error) { return false, nil }); err != nil || !removed {
		t.Fatal(removed, err)
	}
	place := filepath.Join(r.server.bundles, run1)
	inPlace := r.dependencies(t)
	inPlace.Store = &results.Store{Dir: r.server.bundles}
	for name, s := range map[string]*Dependencies{"fetched": r.dependencies(t), "in place": inPlace} {
		dependency := func(path string) (string, error) {
			d := codalab.RunDependency{Dependency: codalab.Dependency{ParentUUID: run1, ParentPath: path, ChildPath: "in"}}
			if name == "in place" {
				d.Location = &place
			}
			found, err := s.Stage(t.Context(), codalab.RunBundle{}, d, "", &transfer.Item{})
			return found.Source, err
		}
		for _, path := range []string{"", "stdout"} {
			source, err := dependency(path)
			var e *transfer.Error
			if !errors.As(err, &e) || e.Transient() || !strings.Contains(err.Error(), "have been removed") {
				t.Errorf("%s, %q: seen at %q, %v; want a final error that says why", name, path, source, err)
			}
		}
		if source, err := dependency("kept.txt"); err != nil || source == "" {
			t.Errorf("%s: the listing is seen at %q, %v", name, source, err)
		}
	}
	// A bundle may have a kept.txt of its own.
	for _, text := range []string{"", strings.Repeat("my notes\n", 20)} {
		must(t, os.WriteFile(filepath.Join(place, "kept.txt"), []byte(text), 0o600))
		if source, err := stageOne(t, r.dependencies(t), codalab.Dependency{ParentUUID: run1, ChildPath: "in"}); err != nil {
			t.Errorf("with the kept.txt %q: %q, %v", text, source, err)
		}
	}
}

func TestPartsOfOneBundleNeedOneQuestionAfterItsListing(t *testing.T) {
	t.Parallel()
	r := keep(t, nil)
	must(t, errors.Join(os.RemoveAll(r.layout.KeptDir(run1)), os.RemoveAll(filepath.Join(r.server.bundles, run1))))
	must(t, os.MkdirAll(filepath.Join(r.server.bundles, run1), 0o700))
	s := r.dependencies(t)
	var parts sync.WaitGroup
	for i := range 30 {
		part := fmt.Sprint("part", i)
		must(t, os.WriteFile(filepath.Join(r.server.bundles, run1, part), nil, 0o600))
		parts.Go(func() {
			if _, err := stageOne(t, s, codalab.Dependency{ParentUUID: run1, ParentPath: part, ChildPath: "in"}); err != nil {
				t.Error(err)
			}
		})
	}
	parts.Wait()
	if n := r.server.listings.Load(); n != 1 {
		t.Errorf("the server was asked %d times", n)
	}
}

func TestKeptDependencyIsSeenInPlace(t *testing.T) {
	t.Parallel()
	r := keep(t, map[string]string{"stdout": "o", "checkpoints/1.pt": "weights", "latest": "->checkpoints", "etc": "->/etc", "up": "->" + strings.Repeat("../", 40) + "etc/passwd"})
	s := r.dependencies(t)
	kept := r.layout.KeptDir(run1)
	for path, want := range map[string]string{
		"": kept, "checkpoints/1.pt": kept + "/checkpoints/1.pt", "latest/1.pt": kept + "/checkpoints/1.pt", "../..": kept, "stdout": kept + "/stdout",
	} {
		source, err := stageOne(t, s, codalab.Dependency{ParentUUID: run1, ParentPath: path, ChildPath: "in"})
		if err != nil || source != want {
			t.Errorf("%q is seen at %q, %v; want %q", path, source, err, want)
		}
	}
	for path, want := range map[string]string{"etc": "leads out", "etc/passwd": "leads out", "up": "leads out", "nosuch": "not found"} {
		source, err := stageOne(t, s, codalab.Dependency{ParentUUID: run1, ParentPath: path, ChildPath: "in"})
		var e *transfer.Error
		if err == nil || !strings.Contains(err.Error(), want) || !errors.As(err, &e) || e.Transient() {
			t.Errorf("%q is seen at %q, %v; want an error with %q", path, source, err, want)
		}
	}
	if r.server.fetched.Load() != 0 {
		t.Errorf("%d downloads, want none", r.server.fetched.Load())
	}
	if source, err := stageOne(t, s, codalab.Dependency{ParentUUID: run1, ParentPath: "kept.txt", ChildPath: "in"}); err != nil || strings.HasPrefix(source, string(r.layout)) {
		t.Errorf("the listing is seen at %q, %v", source, err)
	}
}

// The server's store has the listing of such a bundle, which the bridge has sent.
func TestKeptResultsComeBeforeTheirListingInTheServersStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	layout := spool.Layout(filepath.Join(dir, "shared"))
	location := filepath.Join(dir, "store/bundles", run1+"-ab", "contents")
	kept := filepath.Join(layout.KeptDir(run1), "checkpoints")
	must(t, os.MkdirAll(location, 0o700))
	must(t, os.MkdirAll(kept, 0o700))
	s := &Dependencies{Store: &results.Store{Dir: filepath.Join(dir, "store")}, Layout: layout}
	dep, err := s.Stage(t.Context(), codalab.RunBundle{}, codalab.RunDependency{
		Dependency: codalab.Dependency{ChildPath: "in", ParentUUID: run1, ParentPath: "checkpoints"}, Location: &location,
	}, "", &transfer.Item{})
	must(t, err)
	if dep.Source != kept || !dep.InPlace {
		t.Errorf("bound from %+v, want %s, in place", dep, kept)
	}
}

// The cache has read a download back anyway. Nothing reads data for its digest that is used where it lies.
func TestOnlyDownloadsHaveADigest(t *testing.T) {
	t.Parallel()
	kept := keep(t, map[string]string{"f": "x\n"})
	other := "0x00000000000000000000000000000002"
	write(t, kept.server.bundles, map[string]string{other + "/f": "x\n"})
	d := kept.dependencies(t)
	for name, test := range map[string]struct {
		of   codalab.Dependency
		want string
	}{
		"a file":       {codalab.Dependency{ParentUUID: other, ParentPath: "f"}, codalab.FileDigest + fmt.Sprintf("%x", sha256.Sum256([]byte("x\n")))},
		"a directory":  {codalab.Dependency{ParentUUID: other}, codalab.TreeDigest},
		"kept results": {codalab.Dependency{ParentUUID: run1}, ""},
	} {
		for range 2 { // the second one is there
			found, err := d.Stage(t.Context(), codalab.RunBundle{}, codalab.RunDependency{Dependency: test.of}, "row", &transfer.Item{})
			must(t, err)
			if !strings.HasPrefix(found.Digest, test.want) || test.want == "" && found.Digest != "" {
				t.Errorf("%s: %q, want %q", name, found.Digest, test.want)
			}
		}
	}
}
