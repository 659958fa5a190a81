package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// stored is a bundle in state ready with contents of one file.
func stored(t *testing.T, s *store.Store, text string) store.Bundle {
	t.Helper()
	b := bundle("stored")
	must(t, s.CreateBundle(t.Context(), b, ""))
	up, err := s.NewUpload(b.UUID)
	must(t, err)
	must(t, up.File(strings.NewReader(text)))
	extent, err := s.CompleteUpload(t.Context(), up, b)
	must(t, errors.Join(err, up.Close()))
	b, err = s.Change(t.Context(), b.UUID, func(b *store.Bundle) error {
		b.State, b.Contents, b.Entries = codalab.StateReady, up.Name, extent.Entries
		b.DataSize, b.Metadata["data_size"] = extent.Bytes, extent.Bytes
		return nil
	})
	must(t, err)
	return b
}

// check returns the findings as lines.
func check(t *testing.T, s *store.Store, repair bool) (lines []string, served bool) {
	t.Helper()
	served, err := s.Check(t.Context(), repair, func(f store.Finding) {
		line := f.Kind + " " + f.Object + ": " + f.Problem
		if f.Mended {
			line += ", mended"
		}
		lines = append(lines, line)
	})
	must(t, err)
	return lines, served
}

func (at place) contents(b store.Bundle) string { return filepath.Join(at.dir, "bundles", b.Contents) }

func TestCheckFindsAndMendsWhatIsWrong(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s := open(t, at)
		ctx := t.Context()
		sound, lost, grown, uploading := stored(t, s, "sound"), stored(t, s, "lost"), stored(t, s, "grown"), bundle("u")
		uploading.State = codalab.StateUploading
		must(t, s.CreateBundle(ctx, uploading, ""))
		_, err := s.Change(ctx, uploading.UUID, func(b *store.Bundle) error {
			b.DataSize = 7
			return nil
		})
		must(t, err)
		if lines, _ := check(t, s, false); len(lines) != 1 || lines[0] != "size "+uploading.UUID+": data_size is 7, its upload is over, and the contents have 0 bytes" {
			t.Errorf("%q", lines)
		}
		must(t, os.RemoveAll(at.contents(lost)))
		must(t, os.WriteFile(filepath.Join(at.contents(grown), "contents"), []byte("grown more"), 0o600))
		must(t, os.Mkdir(filepath.Join(at.dir, "bundles", "0x1-2"), 0o700))
		raw := openRaw(t, at)
		_, err = raw.ExecContext(ctx, `UPDATE users SET disk_used = 1000`)
		must(t, err)
		want := []string{
			"contents " + lost.UUID + ": contents bundles/" + lost.Contents + " are missing",
			"disk-used 0xme: user me has disk_used 1000, the bundles have 12314 bytes",
			"size " + grown.UUID + ": data_size is 5, the contents have 10 bytes",
			"size " + uploading.UUID + ": data_size is 7, its upload is over, and the contents have 0 bytes",
			"unnamed 0x1-2: no bundle names these contents",
		}
		mended := slices.Clone(want)
		want[1] = "disk-used 0xme: user me has disk_used 1000, the bundles have 12309 bytes"
		for i := range mended {
			if i > 0 {
				mended[i] += ", mended"
			}
		}
		mended[1] = "disk-used 0xme: user me has disk_used 1005, the bundles have 12314 bytes, mended"
		found := func(repair bool, want []string) {
			t.Helper()
			lines, _ := check(t, s, repair)
			slices.Sort(lines)
			want = slices.Sorted(slices.Values(want))
			if diff := cmp.Diff(want, lines); diff != "" {
				t.Error(diff)
			}
		}
		unlock, err := s.Lock(ctx)
		must(t, err)
		if lines, served := check(t, s, false); !served || len(lines) != 3 {
			t.Errorf("while a server runs: %v %q", served, lines)
		}
		must(t, unlock())
		found(false, want)
		found(true, mended)
		found(false, want[:1])
		if u, err := s.User(ctx, "me"); err != nil || u.DiskUsed != 19+3*codalab.BlockSize || u.EntriesUsed != 4+3 {
			t.Errorf("%d bytes, %d entries, %v", u.DiskUsed, u.EntriesUsed, err)
		}
		if b, err := s.Bundle(ctx, grown.UUID); err != nil || b.Metadata.Int("data_size") != 10 {
			t.Errorf("%v, %v", b, err)
		}
		if _, err := os.Stat(at.contents(sound)); err != nil {
			t.Error(err)
		}
	})
}

func TestCheckFindsRowsWithoutTheirOther(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s := open(t, at)
		b := stored(t, s, "x")
		must(t, s.SetPermissions(t.Context(), store.SharedBundle, store.Permission{Object: b.UUID, GroupUUID: store.PublicGroup, Permission: 1}))
		raw := openRaw(t, at)
		if at.url != "" {
			_, err := raw.ExecContext(t.Context(), `ALTER TABLE bundle_permissions DROP CONSTRAINT bundle_permissions_bundle_uuid_fkey`)
			must(t, err)
		}
		_, err := raw.ExecContext(t.Context(), `INSERT INTO bundle_permissions (bundle_uuid, group_uuid, permission) VALUES ('0xgone', '`+store.PublicGroup+`', 3)`)
		must(t, err)
		for _, want := range []struct {
			repair bool
			lines  []string
		}{
			{true, []string{
				"row bundle_permissions: bundle_uuid 0xgone, which 1 rows name, is not in table bundles, mended",
			}},
			{false, nil},
		} {
			if lines, _ := check(t, s, want.repair); !cmp.Equal(lines, want.lines) {
				t.Errorf("%q", lines)
			}
		}
		_, err = raw.ExecContext(t.Context(), `UPDATE bundles SET public = 2`)
		must(t, err)
		want := "row bundles: searches have another permission of the group public on " + b.UUID + " than its row of bundle_permissions, mended"
		if lines, _ := check(t, s, true); !cmp.Equal(lines, []string{want}) {
			t.Errorf("%q", lines)
		}
		_, err = raw.ExecContext(t.Context(), `UPDATE bundle_permissions SET permission = 3`)
		must(t, err)
		if lines, _ := check(t, s, true); len(lines) != 2 || !strings.HasPrefix(lines[0], "row bundle_permissions: a permission on "+b.UUID+" is neither") {
			t.Errorf("%q", lines)
		}
	})
}

// Uploads, replacements and deletions while Check runs are no findings.
func TestCheckBesideAServerFindsNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s := open(t, at)
		unlock, err := s.Lock(t.Context())
		must(t, err)
		var over atomic.Bool
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for !over.Load() {
					b := stored(t, s, "text")
					must(t, s.DeleteBundles(t.Context(), []string{b.UUID}, store.Time{Time: now}, func(store.Bundle) error { return nil }))
				}
			})
		}
		for range 20 {
			if lines, served := check(t, s, true); len(lines) > 0 || !served {
				t.Errorf("%v %q", served, lines)
			}
		}
		over.Store(true)
		wg.Wait()
		must(t, unlock())
		if lines, served := check(t, s, false); len(lines) > 0 || served {
			t.Errorf("%v %q", served, lines)
		}
	})
}
