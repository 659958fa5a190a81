package inputs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/internal/turns"
)

// bundleServer has one bundle.
type bundleServer struct {
	kind    codalab.TargetType
	content []byte
}

func (b bundleServer) ContentsInfo(context.Context, codalab.Target, int) (codalab.TargetInfo, error) {
	return codalab.TargetInfo{Type: b.kind, Size: int64(len(b.content)), Perm: 0o644}, nil
}

func (b bundleServer) OpenContents(context.Context, codalab.Target, *client.Range) (*client.Contents, error) {
	return &client.Contents{ReadCloser: io.NopCloser(bytes.NewReader(b.content)), Type: b.kind}, nil
}

// archive packs files of the same size.
func archive(t *testing.T, size int, names ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		must(t, os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o600))
	}
	root, err := os.OpenRoot(dir)
	must(t, err)
	var b bytes.Buffer
	must(t, errors.Join(tarstream.Pack(t.Context(), &b, root, ".", tarstream.PackOptions{}), root.Close()))
	return b.Bytes()
}

func TestSiteBoundsADependency(t *testing.T) {
	t.Parallel()
	limits := tarstream.Limits{Bytes: 1 << 20, Entries: 4}
	tests := map[string]struct {
		server bundleServer
		want   string // in the error; "" means no error
	}{
		"as much as may be":   {bundleServer{codalab.TargetDirectory, archive(t, 512<<10, "a", "b")}, ""},
		"too large a tree":    {bundleServer{codalab.TargetDirectory, archive(t, 512<<10, "a", "b", "c")}, "a dependency may hold 1m at most"},
		"too many files":      {bundleServer{codalab.TargetDirectory, archive(t, 0, "a", "b", "c", "d")}, "a dependency may hold 4 files at most"},
		"a file that may be":  {bundleServer{codalab.TargetFile, make([]byte, 1<<20)}, ""},
		"too large a file":    {bundleServer{codalab.TargetFile, make([]byte, 1<<20+1)}, "a dependency may hold 1m at most"},
		"a tree that is none": {bundleServer{codalab.TargetDirectory, []byte("no archive")}, tarstream.ErrFormat.Error()},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := Dependencies{Contents: test.server, Limits: func() tarstream.Limits { return limits }, AtOnce: 1}
			d.begin()
			tr, leave := d.transfers.Join("", turns.Party{Bundle: run1})
			defer leave()
			err := d.download(t.Context(), codalab.Identity{}, codalab.Target{}, tr, filepath.Join(t.TempDir(), "tmp"))
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
			if errors.Is(err, tarstream.ErrTooLarge) != strings.Contains(test.want, "at most") {
				t.Errorf("error %v is not of its kind", err)
			}
		})
	}
}

// If the site sets no limit, the disk does, and a full disk is not the bundle's fault.
func TestDiskBoundsADependency(t *testing.T) {
	t.Parallel()
	tmp := filepath.Join(t.TempDir(), "tmp")
	d := Dependencies{}
	empty, err := d.bound(tmp)
	must(t, err)
	if empty.Bytes <= 0 || empty.Bytes >= empty.free && empty.Bytes != 1 {
		t.Errorf("%d bytes of %d may be used", empty.Bytes, empty.free)
	}
	err = empty.explain(&tarstream.LimitError{Limits: tarstream.Limits{Bytes: empty.Bytes}})
	if !errors.Is(err, syscall.ENOSPC) || errors.Is(err, tarstream.ErrTooLarge) || !strings.Contains(err.Error(), codalab.FormatSize(empty.free)+" free, of which "+codalab.FormatSize(empty.reserve)+" stay free") {
		t.Errorf("error %v", err)
	}
	// The file is a hole without blocks, so its bytes need no room.
	must(t, os.Mkdir(tmp, 0o700))
	const there = 1 << 42
	must(t, errors.Join(os.WriteFile(filepath.Join(tmp, "a"), nil, 0o600), os.Truncate(filepath.Join(tmp, "a"), there)))
	if resumed, err := d.bound(tmp); err != nil || resumed.Bytes < there {
		t.Errorf("%d bytes may be used, %v", resumed.Bytes, err)
	}
	d.Limits = func() tarstream.Limits { return tarstream.Limits{Bytes: 1} }
	if bounded, err := d.bound(tmp); err != nil || bounded.Bytes != 1 || bounded.free != -1 {
		t.Errorf("%+v, %v", bounded, err)
	}
}
