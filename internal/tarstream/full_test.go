package tarstream_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func TestFullDiskIsToldFromAWrongArchive(t *testing.T) {
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
	defer root.Close() //nolint:errcheck // of a test
	_, err = tarstream.Unpack(t.Context(), &archive, root, tarstream.Limits{})
	if !errors.Is(err, syscall.ENOSPC) || errors.Is(err, tarstream.ErrTooLarge) || errors.Is(err, tarstream.ErrUnsafe) {
		t.Errorf("unpack: %v", err)
	}
}
