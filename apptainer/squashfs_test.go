package apptainer_test

import (
	"archive/tar"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// oldMksquashfs returns this machine's mksquashfs, disguised as an older one that reads no tar
// streams.
func oldMksquashfs(t *testing.T) string {
	t.Helper()
	program, err := exec.LookPath("mksquashfs")
	must(t, err)
	path := filepath.Join(t.TempDir(), "mksquashfs")
	script := `#!/bin/sh
case " $* " in
*" -version "*) echo "mksquashfs version 4.4 (2019/08/29)"; exit 0 ;;
*" -tar "*) echo "mksquashfs: invalid option" >&2; exit 1 ;;
esac
exec ` + program + ` "$@"
`
	testenv.WriteProgram(t, path, []byte(script))
	return path
}

// oddImage returns an image with files that are hard to write.
func oddImage(t *testing.T, reg *imagetest.Registry) source.Image {
	t.Helper()
	owned := imagetest.Regular("owned", "x")
	owned.Uid, owned.Gid, owned.Mode = 1234, 77, 0o4711
	closed := imagetest.Regular("closed", "secret")
	closed.Mode = 0
	shut := imagetest.Directory("shut")
	shut.Mode, shut.Uid = 0o500, 1234
	lower := imagetest.TarStream(t, imagetest.Directory("d"), imagetest.Regular("d/gone", "1"), imagetest.Regular("hidden", "shown by a link"), imagetest.Hardlink("link", "hidden"))
	upper := imagetest.TarStream(t, owned, closed, shut, imagetest.Regular("shut/in", "2"), imagetest.Regular(`we"ird \name`, "3"), imagetest.Regular("caf\xe9", "4"),
		imagetest.Symlink("up", "../../etc"), imagetest.Regular("d/.wh.gone", ""), imagetest.Regular("hidden", "anew"),
		imagetest.File{Header: tar.Header{Typeflag: tar.TypeFifo, Name: "pipe", Mode: 0o600}},
		imagetest.File{Header: tar.Header{Typeflag: tar.TypeChar, Name: "null", Mode: 0o666, Devmajor: 1, Devminor: 3}},
		imagetest.File{Header: tar.Header{Typeflag: tar.TypeDir, Name: "sticky/", Mode: 0o1777}})
	return imagetest.Resolve(t, reg.Push(t, "odd", imagetest.Image(t, v1.Config{}, imagetest.GzipLayer(t, lower), imagetest.GzipLayer(t, upper))))
}

func TestTar2sqfsWritesTheSameFileSystem(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	testenv.ImageTool(t, "tar2sqfs")
	img := oddImage(t, imagetest.Start(t))
	old := oldMksquashfs(t)
	// The root directory belongs to this process's user, or with tar2sqfs to root.
	differs := regexp.MustCompile(`(?m)^(drwxr-xr-x) \d+/\d+ +(\d+ .* squashfs-root)$`)
	var want string
	for _, tt := range []struct {
		name      string
		converter apptainer.Converter
	}{
		{"mksquashfs -tar", apptainer.Converter{}},
		{"tar2sqfs", apptainer.Converter{Mksquashfs: old}},
		{"tar2sqfs alone", apptainer.Converter{Mksquashfs: "/nonexistent/mksquashfs", Nice: 5}},
	} {
		tt.converter.Source = imagetest.Source()
		dir := t.TempDir()
		path := filepath.Join(dir, "x.sif")
		if err := tt.converter.Convert(t.Context(), img, path, nil); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		got := differs.ReplaceAllString(unsquash(t, path, "-lln", path), "$1 $2")
		if want == "" {
			want = got
		}
		if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
			t.Errorf("%s (-mksquashfs -tar, +it):\n%s", tt.name, diff)
		}
		if got := unsquash(t, path, "-cat", path, "link"); got != "shown by a link" {
			t.Errorf("%s: the link reads %q", tt.name, got)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Errorf("%s: %v beside it, %v", tt.name, left, err)
		}
	}
}

func TestFileSystemIsWrittenAsTheSettingsSay(t *testing.T) {
	t.Parallel()
	testenv.Containers(t)
	img := oddImage(t, imagetest.Start(t))
	for settings, tt := range map[string]struct {
		converter apptainer.Converter
		says      []string
	}{
		"squashfs zstd-1 128K layout-3":  {apptainer.Converter{}, []string{"Compression zstd", "Block size 131072", "compression-level 1"}},
		"squashfs zstd-9 1024K layout-3": {apptainer.Converter{Level: 9, BlockSize: 1 << 20}, []string{"Compression zstd", "Block size 1048576", "compression-level 9"}},
		"squashfs gzip-3 64K layout-3":   {apptainer.Converter{Compression: "gzip", Level: 3, BlockSize: 64 << 10}, []string{"Compression gzip", "compression-level 3"}},
		"squashfs lz4 128K layout-3":     {apptainer.Converter{Compression: "lz4"}, []string{"Compression lz4"}},
		"squashfs xz 128K layout-3":      {apptainer.Converter{Compression: "xz"}, []string{"Compression xz"}},
	} {
		if got := tt.converter.Settings(); got != settings {
			t.Errorf("settings %q, want %q", got, settings)
		}
		path := converted(t, tt.converter, img)
		got := unsquash(t, path, "-stat", path)
		for _, want := range tt.says {
			if !strings.Contains(got, want) {
				t.Errorf("%s: its superblock says\n%s", settings, got)
			}
		}
	}
	for words, c := range map[string]apptainer.Converter{
		"has to be zstd, gzip, lz4 or xz":          {Compression: "brotli"},
		"gzip has 1 to 9":                          {Compression: "gzip", Level: 10},
		"lz4 has none":                             {Compression: "lz4", Level: 1},
		"has to be a power of two from 4 KiB":      {BlockSize: 100_000},
		"the nice value is 20, and has to be from": {Nice: 20},
	} {
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("error %v, want one with %q", err, words)
		}
	}
}
