package staging_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/staging"
)

// directoryServer serves and takes contents as a server does, from and to
// directories.
type directoryServer struct {
	bundles string
	fetched atomic.Int64
	// refuse is the answer to uploads; nil takes them.
	refuse error
}

func (s *directoryServer) path(t codalab.Target) string {
	return filepath.Join(s.bundles, t.BundleUUID, t.Subpath)
}

func (s *directoryServer) ContentsInfo(_ context.Context, t codalab.Target, _ int) (codalab.TargetInfo, error) {
	info, err := os.Stat(s.path(t))
	if err != nil {
		return codalab.TargetInfo{}, &codalab.Error{Status: 404, Message: "not found"}
	}
	return codalab.TargetInfo{Perm: int(info.Mode().Perm())}, nil
}

func (s *directoryServer) OpenContents(ctx context.Context, t codalab.Target, _ *client.Range) (*client.Contents, error) {
	s.fetched.Add(1)
	info, err := os.Stat(s.path(t))
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
	if s.refuse != nil {
		return s.refuse
	}
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

func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if path != dir {
			found[strings.TrimPrefix(path, dir+"/")] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(found))
}

const run1 = "0x00000000000000000000000000000001"

func TestCollectLeavesDependencyLinksAndExcludedOut(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{
		"stdout": "out", "result/model.bin": "m", "result/log.tmp": "x", "checkpoints/1": "c", "keep.tmpx": "k",
	})
	for link, target := range map[string]string{
		"data": "/" + run1 + "_dependencies/data", "in": "/etc/passwd", "own": "stdout",
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	server := &directoryServer{bundles: t.TempDir()}
	run := codalab.RunBundle{
		UUID:     run1,
		Metadata: codalab.Metadata{"exclude_patterns": []any{"*.tmp", "checkpoints"}},
		Dependencies: []codalab.RunDependency{
			{Dependency: codalab.Dependency{ChildPath: "data"}}, {Dependency: codalab.Dependency{ChildPath: "in"}},
		},
	}
	if err := (&staging.Collector{Contents: server}).Collect(t.Context(), run, dir); err != nil {
		t.Fatal(err)
	}
	// "in" is no longer the link that was made for the dependency: it is the
	// command's own.
	want := []string{"in", "keep.tmpx", "own", "result", "result/model.bin", "stdout"}
	if diff := cmp.Diff(want, names(t, filepath.Join(server.bundles, run1))); diff != "" {
		t.Errorf("uploaded (-want +got):\n%s", diff)
	}
}

// It runs as an ordinary user, whom closed files do stop.
func TestWhatACommandClosedToItsOwnerIsCollected(t *testing.T) {
	t.Parallel()
	if os.Getuid() == 0 && !testenv.AsResearcher(t) {
		return
	}
	dir := write(t, map[string]string{"a/b/c": "kept", "w": "x"})
	if err := errors.Join(os.Chmod(filepath.Join(dir, "w"), 0o200), os.Chmod(filepath.Join(dir, "a"), 0)); err != nil {
		t.Fatal(err)
	}
	server := &directoryServer{bundles: t.TempDir()}
	if err := (&staging.Collector{Contents: server}).Collect(t.Context(), codalab.RunBundle{UUID: run1}, dir); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "a/b", "a/b/c", "w"}, names(t, filepath.Join(server.bundles, run1))); diff != "" {
		t.Errorf("uploaded (-want +got):\n%s", diff)
	}
}

func TestRefusedUploadKeepsTheServersWords(t *testing.T) {
	t.Parallel()
	server := &directoryServer{refuse: &codalab.Error{Method: "PUT", Status: 403, Message: "Contents cannot be modified, bundle already finalized."}}
	err := (&staging.Collector{Contents: server}).Collect(t.Context(), codalab.RunBundle{UUID: run1}, write(t, map[string]string{"stdout": "x"}))
	var answer *codalab.Error
	if !errors.As(err, &answer) || answer.Transient() {
		t.Errorf("error %v, want the server's refusal", err)
	}
}

func TestGoneWorkingDirectoryIsFinal(t *testing.T) {
	t.Parallel()
	err := (&staging.Collector{Contents: &directoryServer{}}).Collect(t.Context(), codalab.RunBundle{UUID: run1}, filepath.Join(t.TempDir(), "gone"))
	var e *staging.Error
	if !errors.As(err, &e) || e.Transient() || !strings.Contains(err.Error(), "is gone") {
		t.Errorf("error %v, want a final one that says so", err)
	}
}
