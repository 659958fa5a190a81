package tarstream_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

// benchTrees are the kinds of results that cost differently: most are tiny,
// some are many files, some are large.
func benchTrees() map[string]func(b *testing.B, dir string) (size int64) {
	return map[string]func(b *testing.B, dir string) int64{
		"tiny":  func(b *testing.B, dir string) int64 { return grow(b, dir, 1, 3, 200) },
		"small": func(b *testing.B, dir string) int64 { return grow(b, dir, 20, 100, 2000) },
		"big":   func(b *testing.B, dir string) int64 { return grow(b, dir, 1, 4, 16<<20) },
	}
}

// grow makes directories with files, half of whose content does not compress.
func grow(b *testing.B, dir string, directories, files, size int) int64 {
	b.Helper()
	random := rand.NewChaCha8([32]byte{4})
	content := make([]byte, size)
	for d := range directories {
		sub := filepath.Join(dir, fmt.Sprintf("d%03d", d), "in", "it")
		must(b, os.MkdirAll(sub, 0o755))
		for f := range files {
			_, _ = random.Read(content[:size/2])
			must(b, os.WriteFile(filepath.Join(sub, fmt.Sprintf("file%03d", f)), content, 0o644))
		}
	}
	return int64(directories * files * size)
}

func BenchmarkPack(b *testing.B) {
	for name, make := range benchTrees() {
		b.Run(name, func(b *testing.B) {
			dir := b.TempDir()
			b.SetBytes(make(b, dir))
			b.ReportAllocs()
			root := openRoot(b, dir)
			for b.Loop() {
				must(b, tarstream.Pack(b.Context(), io.Discard, root, ".", tarstream.PackOptions{}))
			}
		})
	}
}

func BenchmarkUnpack(b *testing.B) {
	for name, make := range benchTrees() {
		b.Run(name, func(b *testing.B) {
			dir := b.TempDir()
			b.SetBytes(make(b, dir))
			b.ReportAllocs()
			data := pack(b, dir, tarstream.PackOptions{})
			to := filepath.Join(b.TempDir(), "to")
			for b.Loop() {
				b.StopTimer()
				must(b, os.RemoveAll(to))
				must(b, os.Mkdir(to, 0o755))
				root, err := os.OpenRoot(to)
				must(b, err)
				b.StartTimer()
				_, err = tarstream.Unpack(b.Context(), bytes.NewReader(data), root, tarstream.Limits{})
				must(b, err)
				must(b, root.Close())
			}
		})
	}
}
