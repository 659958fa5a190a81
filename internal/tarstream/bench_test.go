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

// benchTree is a kind of results: most are tiny, some have many files, some large ones.
type benchTree struct{ directories, files, size int }

func benchTrees() map[string]benchTree {
	return map[string]benchTree{"tiny": {1, 3, 200}, "small": {20, 100, 2000}, "big": {1, 4, 16 << 20}}
}

// grow makes directories with files that compress to a half, and returns their size.
func (tree benchTree) grow(b *testing.B, dir string) int64 {
	b.Helper()
	random := rand.NewChaCha8([32]byte{4})
	content := make([]byte, tree.size)
	for d := range tree.directories {
		sub := filepath.Join(dir, fmt.Sprintf("d%03d", d), "in", "it")
		must(b, os.MkdirAll(sub, 0o755))
		for f := range tree.files {
			_, _ = random.Read(content[:tree.size/2])
			must(b, os.WriteFile(filepath.Join(sub, fmt.Sprintf("file%03d", f)), content, 0o644))
		}
	}
	return int64(tree.directories * tree.files * tree.size)
}

func BenchmarkPack(b *testing.B) {
	for name, tree := range benchTrees() {
		b.Run(name, func(b *testing.B) {
			dir := b.TempDir()
			b.SetBytes(tree.grow(b, dir))
			b.ReportAllocs()
			root := openRoot(b, dir)
			for b.Loop() {
				must(b, tarstream.Pack(b.Context(), io.Discard, root, ".", tarstream.PackOptions{}))
			}
		})
	}
}

func BenchmarkUnpack(b *testing.B) {
	for name, tree := range benchTrees() {
		b.Run(name, func(b *testing.B) {
			dir := b.TempDir()
			b.SetBytes(tree.grow(b, dir))
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
