package tarstream_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func TestFullDiskIsNotTakenForAWrongArchive(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testenv.SmallDisk(t, dir, "size=256k")
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	header := tar.Header{Typeflag: tar.TypeReg, Name: "large", Size: 1 << 20, Mode: 0o600}
	err := w.WriteHeader(&header)
	if err == nil {
		_, err = w.Write(make([]byte, header.Size))
	}
	must(t, errors.Join(err, w.Close()))
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer root.Close()
	_, err = tarstream.Unpack(t.Context(), &archive, root, tarstream.Limits{})
	if !errors.Is(err, syscall.ENOSPC) || errors.Is(err, tarstream.ErrTooLarge) || errors.Is(err, tarstream.ErrUnsafe) {
		t.Errorf("unpack: %v", err)
	}
}

func TestFailureOfTheSourceIsNoFault(t *testing.T) {
	t.Parallel()
	lost := errors.New("connection lost")
	for name, data := range map[string][]byte{"plain": file("a")[:514], "gzipped": gzipped(file("a"))[:40], "nothing": nil, "two bytes": {0x1f, 0x8b}} {
		_, err := tarstream.Unpack(t.Context(), io.MultiReader(bytes.NewReader(data), failing{lost}), openRoot(t, t.TempDir()), tarstream.Limits{})
		if !errors.Is(err, lost) || errors.Is(err, tarstream.ErrFormat) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
