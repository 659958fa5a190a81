package store_test

import (
	"errors"
	"testing"

	"github.com/cl-slurm/cl-slurm/server/store"
)

func TestUsageIsWrittenWithItsBundleAndDeletedWithIt(t *testing.T) {
	t.Parallel()
	onLibraries(t, func(t *testing.T, l library) {
		write := func(series string, refused error) {
			t.Helper()
			_, err := l.ChangeAll(t.Context(), []string{uuidOf("a"), "0xnone"}, func(b *store.Bundle) error {
				if b.Usage != "" {
					t.Errorf("a read bundle has usage %q", b.Usage)
				}
				b.Usage = series // and nothing else of the bundle changes
				return refused
			})
			if !errors.Is(err, refused) {
				t.Errorf("%v, want %v", err, refused)
			}
		}
		write("one", nil)
		write("two", nil)
		write("", nil)
		no := errors.New("no")
		write("three", no)
		got, err := l.Usage(t.Context(), []string{uuidOf("a"), uuidOf("b")})
		if must(t, err); len(got) != 1 || got[uuidOf("a")] != "two" {
			t.Errorf("%v", got)
		}
		must(t, l.DeleteBundles(t.Context(), []string{uuidOf("a")}, store.Time{Time: now}, func(store.Bundle) error { return nil }))
		if got, err := l.Usage(t.Context(), []string{uuidOf("a")}); err != nil || len(got) > 0 {
			t.Errorf("of a deleted bundle: %v, %v", got, err)
		}
	})
}
