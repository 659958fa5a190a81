package store_test

import (
	"bytes"
	"io"
	"path/filepath"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// BenchmarkUpload stores a large file: one of a size that the owner has not, one that differs in its first block from 32
// files of the owner, and one that the owner has.
func BenchmarkUpload(b *testing.B) {
	const size = 256 << 20
	for name, test := range map[string]struct {
		others int
		fill   byte
	}{"alone": {0, 1}, "others_of_its_size": {32, 1}, "stored_already": {1, 0}} {
		b.Run(name, func(b *testing.B) {
			s, err := store.Open(b.Context(), filepath.Join(b.TempDir(), "data"))
			must(b, err)
			defer func() { must(b, s.Close()) }()
			must(b, s.AddUser(b.Context(), store.User{ID: "0xme", Name: "me"}))
			upload := func(fill byte, size int) store.Bundle {
				one := bundle("x")
				must(b, s.CreateBundle(b.Context(), one, ""))
				up, err := s.NewUpload(one.UUID)
				must(b, err)
				must(b, up.File(io.LimitReader(endless{bytes.Repeat([]byte{fill}, 64<<10)}, int64(size))))
				extent, err := s.CompleteUpload(b.Context(), up, one)
				must(b, err)
				one, err = s.Change(b.Context(), one.UUID, func(b *store.Bundle) error {
					b.State, b.Contents, b.DataSize, b.Entries = codalab.StateReady, up.Name, extent.Bytes, extent.Entries
					return nil
				})
				must(b, err)
				must(b, up.Close())
				return one
			}
			for range test.others {
				upload(0, size)
			}
			b.SetBytes(size)
			for b.Loop() {
				one := upload(test.fill, size)
				b.StopTimer()
				must(b, s.DeleteBundles(b.Context(), []string{one.UUID}, store.Time{Time: now}, func(store.Bundle) error { return nil }))
				b.StartTimer()
			}
		})
	}
}

// endless repeats a block.
type endless struct{ block []byte }

func (e endless) Read(b []byte) (int, error) { return copy(b, e.block), nil }
