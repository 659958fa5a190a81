package server_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"maps"
	"slices"
	"testing"
)

func tarGz(t *testing.T, files map[string]string) io.Reader {
	t.Helper()
	var b bytes.Buffer
	zw := gzip.NewWriter(&b)
	tw := tar.NewWriter(zw)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		must(t, tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "./" + name, Mode: 0o644, Size: int64(len(files[name]))}))
		_, err := io.WriteString(tw, files[name])
		must(t, err)
	}
	must(t, tw.Close())
	must(t, zw.Close())
	return &b
}
