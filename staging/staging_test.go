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

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

// directoryServer serves and takes contents as a server does, from and to
// directories.
type directoryServer struct {
	bundles string
	fetched atomic.Int64
	// listings counts the questions after a kept.txt.
	listings atomic.Int64
	// refuse is the answer to uploads; nil takes them.
	refuse error
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
