package flatten

import (
	"archive/tar"
	"bytes"
	"errors"
	"math"
	"testing"
)

// These are the owners of files in a container of Docker 20.10.
func TestOwnersAreThoseOfDocker(t *testing.T) {
	t.Parallel()
	for id, want := range map[int]int{
		0: 0, 1234: 1234, 3_000_000_000: 3_000_000_000, -1: 0, -2: math.MaxUint32 - 1, math.MaxUint32: 0, math.MaxUint32 - 1: math.MaxUint32 - 1,
		1 << 32: 0, 1 << 40: 0, 1<<40 + 5: 5, 1<<55 + 7: 7, -1 << 55: 0,
	} {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		must(t, errors.Join(w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "x", Uid: id, Gid: id, Format: tar.FormatGNU}), w.Close()))
		out, _, err := flattened(buf.Bytes())
		must(t, err)
		hdr, err := tar.NewReader(bytes.NewReader(out)).Next()
		must(t, err)
		if hdr.Uid != want || hdr.Gid != want {
			t.Errorf("owner %d became %d:%d, want %d", id, hdr.Uid, hdr.Gid, want)
		}
	}
}
