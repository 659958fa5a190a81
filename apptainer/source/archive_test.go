package source_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
)

// The list of an archive's files is kept in memory. These names compress to some kilobytes.
func TestArchiveWithLongNamesIsRefused(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	zw := gzip.NewWriter(&packed)
	tw := tar.NewWriter(zw)
	for range 40 {
		must(t, tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: strings.Repeat("n", 1<<20-100), Format: tar.FormatPAX}))
	}
	must(t, errors.Join(tw.Close(), zw.Close()))
	dir := t.TempDir()
	path := filepath.Join(dir, "image.tar.gz")
	must(t, os.WriteFile(path, packed.Bytes(), 0o600))
	_, err := local(dir).Resolve(t.Context(), imagetest.Reference(t, "docker-archive:"+path))
	imagetest.WantError(t, err, false, "the names of the files in it have more than 32 MiB")
}

func TestReadingOfACompressedArchiveIsBounded(t *testing.T) {
	t.Parallel()
	const limit = 256 << 30
	for _, test := range []struct {
		at, before int64
		words      string
	}{
		{0, 0, ""},
		{limit - 100, 0, "it unpacks to more than 256 GiB: unpack it first"},
		{0, 16*limit - 100, "it has so many layers that more than 4096 GiB would be unpacked: unpack it first"},
	} {
		err := source.ReadPacked(test.at, test.before, 200)
		if (err == nil) != (test.words == "") || err != nil && err.Error() != test.words {
			t.Errorf("%+v: %v", test, err)
		}
	}
}
