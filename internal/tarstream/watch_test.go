package tarstream_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

func TestOnlyWholeEntriesAreTold(t *testing.T) {
	t.Parallel()
	file := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name, Size: 1000} }
	whole := archive(t, tar.Header{Typeflag: tar.TypeDir, Name: "./d/", Mode: 0o755}, file("./d/a"), tar.Header{Typeflag: tar.TypeLink, Name: "b", Linkname: "./d/a"}, file("c"))
	for _, cut := range []int{0, 1200} {
		var told []string
		var wrote int64
		_, err := tarstream.UnpackWatched(t.Context(), bytes.NewReader(whole[:len(whole)-cut-1024]), openRoot(t, t.TempDir()), tarstream.Limits{}, tarstream.Watch{
			Wrote: func(n int64) { wrote += n },
			Entry: func(name string, _ *tar.Header) { told = append(told, name) },
		})
		want, bytes := []string{"d", "d/a", "b", "c"}, int64(2000)
		if cut > 0 {
			want, bytes = want[:3], 1000
		}
		if (cut > 0) != errors.Is(err, tarstream.ErrFormat) || !slices.Equal(told, want) || wrote < bytes || cut == 0 && wrote != bytes {
			t.Errorf("cut by %d: told of %q and %d bytes, error %v", cut, told, wrote, err)
		}
	}
}
