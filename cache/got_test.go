package cache_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/cache"
)

func TestGotTellsHitsFromMisses(t *testing.T) {
	t.Parallel()
	var seen []bool
	c, err := cache.Open(filepath.Join(t.TempDir(), "cache"), cache.Options{Got: func(_ cache.Key, hit bool) { seen = append(seen, hit) }})
	if err != nil {
		t.Fatal(err)
	}
	w := want
	for range 2 {
		w.Holder = "row-1"
		if _, err := c.Get(t.Context(), w, func(_ context.Context, tmp string) error { return os.WriteFile(tmp, nil, 0o600) }); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Get(t.Context(), cache.Want{Key: cache.Key{Kind: "sif", ID: "other"}}, func(context.Context, string) error { return os.ErrPermission }); err == nil {
		t.Error("a failed fill succeeds")
	}
	if !slices.Equal(seen, []bool{false, true}) {
		t.Errorf("hits %v", seen)
	}
}

func TestDigestOfAContentIsThatOfItsRecord(t *testing.T) {
	t.Parallel()
	c, err := cache.Open(filepath.Join(t.TempDir(), "cache"), cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	get := func(id string, fill cache.Fill) string {
		t.Helper()
		path, err := c.Get(t.Context(), cache.Want{Key: cache.Key{Kind: "bundle", ID: id}, Holder: "row-1"}, fill)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := get("file", func(_ context.Context, tmp string) error { return os.WriteFile(tmp, []byte("x\n"), 0o600) })
	dir := get("dir", func(_ context.Context, tmp string) error {
		return errors.Join(os.Mkdir(tmp, 0o700), os.WriteFile(filepath.Join(tmp, "a"), []byte("x\n"), 0o600))
	})
	if digest, isDir := c.DigestOf(file); isDir || digest != fmt.Sprintf("%x", sha256.Sum256([]byte("x\n"))) {
		t.Errorf("of a file: %q, %v", digest, isDir)
	}
	if digest, isDir := c.DigestOf(dir); !isDir || len(digest) != 64 {
		t.Errorf("of a directory: %q, %v", digest, isDir)
	}
	for _, path := range []string{"", "/etc/passwd", filepath.Dir(file), strings.Replace(file, filepath.Base(filepath.Dir(file)), filepath.Base(filepath.Dir(dir)), 1)} {
		if digest, isDir := c.DigestOf(path); digest != "" || isDir {
			t.Errorf("of %q: %q, %v", path, digest, isDir)
		}
	}
}
