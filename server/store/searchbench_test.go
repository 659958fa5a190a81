package store_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/server/keywords"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/server/store/storetest"
)

// BenchmarkSearch searches 100,000 runs of ten users.
func BenchmarkSearch(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "data")
	s, err := store.Open(b.Context(), dir)
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		b.Fatal(err)
	}
	if err := storetest.Fill(b.Context(), dir, 100_000); err != nil {
		b.Fatal(err)
	}
	if s, err = store.Open(b.Context(), dir); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for _, search := range []string{
		"nosuchword", "abc", "model-97", "name=train-model-7", "name=train-model-7%", "state=failed", "state=killed",
		".mine", ".mine .limit=1000", ".mine .last", ".mine state=killed", "owner=user3 .last", "tags=exp7", "tags=exp7,exp9,nosuch",
		"tags=exp7%", ".count", ".count state=failed", ".count .mine", ".count tags=all", ".count .shared", "size=.sort-", "name=.sort",
		"created=.sort", "time=.sort-", "time=.sum", "size=.sum", ".after=2023-12-01 .limit=100", ".last .offset=50000", ".floating",
		"host_worksheet=0xw", "dependency=0x1",
		"command=nosuch", "exitcode=1", "exitcode=.sort-", ".mine exitcode=.sort-", "description=nosuch%", ".mine description=nosuch%", "=nosuch",
	} {
		q, err := keywords.Parse(strings.Fields(search))
		if err != nil {
			b.Fatal(err)
		}
		for _, user := range []string{storetest.User(4), storetest.User(9), store.RootID} {
			b.Run(search+"/"+user, func(b *testing.B) {
				for b.Loop() {
					if q.Aggregate() {
						_, err = s.MeasureBundles(b.Context(), store.User{ID: user}, q)
					} else {
						_, err = s.SearchBundles(b.Context(), store.User{ID: user}, q)
					}
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkChange writes the fields that a check-in of a running bundle changes.
func BenchmarkChange(b *testing.B) {
	s, err := store.Open(b.Context(), filepath.Join(b.TempDir(), "data"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if err := s.AddUser(b.Context(), store.User{ID: "0xme", Name: "me"}); err != nil {
		b.Fatal(err)
	}
	var uuids []string
	for i := range 1000 {
		one := bundle("x")
		one.Metadata, one.Created = storetest.Metadata(i), store.Time{Time: now.Add(time.Duration(i) * time.Second)}
		if err := s.CreateBundle(b.Context(), one, ""); err != nil {
			b.Fatal(err)
		}
		uuids = append(uuids, one.UUID)
	}
	size := int64(0)
	b.ResetTimer()
	for b.Loop() {
		size++
		_, err := s.ChangeAll(b.Context(), uuids, func(b *store.Bundle) error {
			b.DataSize, b.Metadata["data_size"] = size, size
			b.Metadata["time"], b.Metadata["run_status"] = float64(size), fmt.Sprint("at ", size)
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(len(uuids)), "µs/bundle")
}
