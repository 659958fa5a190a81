package store_test

import (
	"archive/tar"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// weights is the text of a file that is worth sharing.
var weights = strings.Repeat("0.125 ", 50_000)

// setOf is an archive of a directory with the file.
func setOf(t *testing.T, text string) string {
	t.Helper()
	var archive strings.Builder
	out := tar.NewWriter(&archive)
	must(t, out.WriteHeader(&tar.Header{Name: "sub/weights", Mode: 0o644, Size: int64(len(text)), ModTime: now}))
	_, err := out.Write([]byte(text))
	must(t, errors.Join(err, out.Close()))
	return archive.String()
}

// begun is a new bundle with a directory that is being uploaded and is not complete yet.
func begun(t *testing.T, s *store.Store, owner string) (store.Bundle, *store.Upload) {
	t.Helper()
	b := bundle("set")
	b.OwnerID = owner
	must(t, s.CreateBundle(t.Context(), b, ""))
	up, err := s.NewUpload(b.UUID)
	must(t, err)
	must(t, up.Archive(t.Context(), strings.NewReader(setOf(t, weights)), tarstream.Limits{}))
	return b, up
}

// finish ends an upload as the server does.
func finish(t *testing.T, s *store.Store, b store.Bundle, up *store.Upload) (store.Bundle, error) {
	t.Helper()
	extent, err := s.CompleteUpload(t.Context(), up, b)
	if err == nil {
		b, err = s.Change(t.Context(), b.UUID, func(b *store.Bundle) error {
			b.State, b.Contents, b.Entries = codalab.StateReady, up.Name, extent.Entries
			b.DataSize, b.Metadata["data_size"] = extent.Bytes, extent.Bytes
			return nil
		})
	}
	return b, errors.Join(err, up.Close())
}

// uploaded is a new ready bundle with a directory.
func uploaded(t *testing.T, s *store.Store, owner string) store.Bundle {
	t.Helper()
	b, up := begun(t, s, owner)
	b, err := finish(t, s, b, up)
	must(t, err)
	return b
}

// weightsOf returns the file of a bundle.
func weightsOf(t *testing.T, s *store.Store, b store.Bundle) fs.FileInfo {
	t.Helper()
	root, err := s.OpenContents(b)
	must(t, err)
	name := store.ContentsPath + "/sub/weights"
	text, err := root.ReadFile(name)
	must(t, err)
	info, err := root.Stat(name)
	must(t, errors.Join(err, root.Close()))
	if string(text) != weights || !info.ModTime().Equal(now) {
		t.Errorf("%s has %d bytes of %s", b.UUID, len(text), info.ModTime())
	}
	return info
}

// storedBytes is the room that the files of a directory take, as du(1) counts it.
func storedBytes(t *testing.T, dir string) (sum int64) {
	t.Helper()
	seen := map[uint64]bool{}
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil && !d.IsDir() {
			err = unix.Lstat(path, &st)
		}
		if err == nil && !seen[st.Ino] {
			sum += st.Size
			seen[st.Ino] = true
		}
		return err
	}))
	return sum
}

func removeAll(t *testing.T, s *store.Store, some ...store.Bundle) {
	t.Helper()
	for _, b := range some {
		must(t, s.DeleteBundles(t.Context(), []string{b.UUID}, store.Time{Time: now}, func(store.Bundle) error { return nil }))
	}
}

func TestEqualContentsOfAnOwnerAreStoredOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s := open(t, at)
		must(t, s.AddUser(t.Context(), store.User{ID: "0xother", Name: "other", DiskQuota: 1000}))
		first, second := uploaded(t, s, "0xme"), uploaded(t, s, "0xme")
		if !os.SameFile(weightsOf(t, s, first), weightsOf(t, s, second)) {
			t.Error("stored twice")
		}
		if others := uploaded(t, s, "0xother"); os.SameFile(weightsOf(t, s, first), weightsOf(t, s, others)) {
			t.Error("shared with another owner's")
		}
		me, err := s.User(t.Context(), "0xme")
		must(t, err)
		if want := 2 * second.Charge().Bytes; me.DiskUsed != want {
			t.Errorf("%d bytes are counted, and both together are %d", me.DiskUsed, want)
		}
		removeAll(t, s, first)
		weightsOf(t, s, second)
		third := uploaded(t, s, "0xme")
		if !os.SameFile(weightsOf(t, s, second), weightsOf(t, s, third)) {
			t.Error("stored again")
		}
		removeAll(t, s, third, second)
		if got := storedBytes(t, filepath.Join(at.dir, "bundles")); got != int64(len(weights)) {
			t.Errorf("%d bytes are left beside the other owner's", got)
		}
		if lines, _ := check(t, s, false); len(lines) > 0 {
			t.Errorf("found %q", lines)
		}
	})
}

func TestEqualUploadsAtOnceAreStoredOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s := open(t, at)
		s.Failed = func(err error) { t.Error(err) }
		var all errgroup.Group
		for range 8 {
			b, up := begun(t, s, "0xme")
			all.Go(func() error {
				_, err := finish(t, s, b, up)
				return err
			})
		}
		must(t, all.Wait())
		if got := storedBytes(t, filepath.Join(at.dir, "bundles")); got != int64(len(weights)) {
			t.Errorf("%d bytes are stored", got)
		}
		if lines, _ := check(t, s, false); len(lines) > 0 {
			t.Errorf("found %q", lines)
		}
	})
}

// An upload may find equal contents just before their bundle is removed.
func TestUploadLosesNothingToARemovalAtTheSameTime(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s := open(t, at)
		for range 30 {
			old := uploaded(t, s, "0xme")
			b, up := begun(t, s, "0xme")
			var both errgroup.Group
			both.Go(func() (err error) {
				b, err = finish(t, s, b, up)
				return err
			})
			both.Go(func() error {
				return s.DeleteBundles(t.Context(), []string{old.UUID}, store.Time{Time: now}, func(store.Bundle) error { return nil })
			})
			must(t, both.Wait())
			weightsOf(t, s, b)
			removeAll(t, s, b)
		}
		if got := storedBytes(t, at.dir+"/bundles"); got != 0 {
			t.Errorf("%d bytes are left", got)
		}
	})
}

// A crash may end an upload before, between and after the two steps in which it takes over a file, and before and after
// its bundle has it.
func TestCrashOfAnUploadLeavesTheOtherWhole(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s := open(t, at)
		first := uploaded(t, s, "0xme")
		file := filepath.Join(at.dir, "bundles", first.Contents, store.ContentsPath, "sub/weights")
		_, cut := begun(t, s, "0xme")
		must(t, os.Link(file, filepath.Join(at.dir, "bundles", cut.Name, store.ContentsPath+".shared")))
		b, uncommitted := begun(t, s, "0xme")
		_, err := s.CompleteUpload(t.Context(), uncommitted, b)
		must(t, err)
		second := uploaded(t, s, "0xme")
		must(t, errors.Join(cut.Close(), uncommitted.Close(), s.Close()))
		s = open2(t, at)
		if n, err := s.Sweep(t.Context()); n != 2 || err != nil {
			t.Errorf("%d were left, %v", n, err)
		}
		if !os.SameFile(weightsOf(t, s, first), weightsOf(t, s, second)) {
			t.Error("stored twice")
		}
		removeAll(t, s, first, second)
		if got := storedBytes(t, filepath.Join(at.dir, "bundles")); got != 0 {
			t.Errorf("%d bytes are left", got)
		}
	})
}

// open2 opens the store of a place again.
func open2(t *testing.T, at place) *store.Store {
	t.Helper()
	s, err := store.OpenDatabase(t.Context(), at.dir, at.url)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

// A worker on the store's disk may still have a file of its results open.
func TestResultsOfAWorkerOnTheDiskAreNotShared(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s := open(t, at)
		results := bundle("run")
		results.Assigned = store.Time{Time: now}
		must(t, s.CreateBundle(t.Context(), results, ""))
		location, err := s.MakeLocation(results)
		must(t, err)
		file := filepath.Join(location, "sub/weights")
		must(t, errors.Join(os.Mkdir(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(weights), 0o644), os.Chtimes(file, now, now)))
		extent, err := s.FlushLocation(results)
		must(t, err)
		results, err = s.Change(t.Context(), results.UUID, func(b *store.Bundle) error {
			b.Assigned = store.Time{Time: now}
			b.State, b.Contents, b.Entries = codalab.StateReady, b.LocationName(), extent.Entries
			b.DataSize, b.Metadata["data_size"] = extent.Bytes, extent.Bytes
			return nil
		})
		must(t, err)
		if os.SameFile(weightsOf(t, s, results), weightsOf(t, s, uploaded(t, s, "0xme"))) {
			t.Error("shared")
		}
	})
}

func TestBackupOfEqualContentsTakesTheirRoomOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		for disk, dest := range map[string]string{"the same": t.TempDir(), "another": t.TempDir()} {
			if disk == "another" {
				testenv.SmallDisk(t, dest, "size=16m")
			}
			s := open(t, place{filepath.Join(t.TempDir(), "data"), ""})
			if at.url != "" {
				s = open(t, place{filepath.Join(t.TempDir(), "data"), testenv.Postgres(t)})
			}
			first, second := uploaded(t, s, "0xme"), uploaded(t, s, "0xme")
			dest = filepath.Join(dest, "backup")
			_, err := s.Backup(t.Context(), dest, now)
			must(t, err)
			if got := storedBytes(t, filepath.Join(dest, "bundles")); got != int64(len(weights)) {
				t.Errorf("%s disk: the backup has %d bytes", disk, got)
			}
			removeAll(t, s, first, second)
			restored := place{dir: filepath.Join(t.TempDir(), "restored")}
			must(t, store.Restore(t.Context(), dest, restored.dir, ""))
			r := open2(t, restored)
			if !os.SameFile(weightsOf(t, r, first), weightsOf(t, r, second)) {
				t.Errorf("%s disk: the restored are two files", disk)
			}
			removeAll(t, r, second)
			weightsOf(t, r, first)
			if left, err := filepath.Glob(filepath.Join(restored.dir, "*names*")); len(left) > 0 || err != nil {
				t.Errorf("%q, %v are left", left, err)
			}
		}
	})
}

func TestContentsOfTheSameSizeThatDifferStayApart(t *testing.T) {
	t.Parallel()
	s := open(t, place{dir: t.TempDir()})
	var all []store.Bundle
	for i := range 4 {
		text := strings.Repeat("x", 100_000) + fmt.Sprint(i/2)
		all = append(all, stored(t, s, text))
	}
	for i, b := range all {
		text, err := os.ReadFile(s.ContentsFile(b))
		must(t, err)
		if want := fmt.Sprint(i / 2); !strings.HasSuffix(string(text), want) {
			t.Errorf("%d has %q", i, text[len(text)-1:])
		}
	}
	if got := storedBytes(t, filepath.Dir(filepath.Dir(s.ContentsFile(all[0])))); got != 2*100_001 {
		t.Errorf("%d bytes are stored", got)
	}
}

// Someone who changes one file of a directory and uploads it again needs room for that file.
func TestUnchangedFilesOfADirectoryAreStoredOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s := open(t, at)
		for i := range 3 {
			b := bundle("code")
			must(t, s.CreateBundle(t.Context(), b, ""))
			up, err := s.NewUpload(b.UUID)
			must(t, err)
			var archive strings.Builder
			out := tar.NewWriter(&archive)
			for name, text := range map[string]string{"train.py": fmt.Sprint("lr = ", i), "lib/data": weights} {
				must(t, out.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), ModTime: now}))
				_, err := out.Write([]byte(text))
				must(t, err)
			}
			for range i { // another number of entries and another size
				must(t, out.WriteHeader(&tar.Header{Name: fmt.Sprint("new", i), Mode: 0o644, Size: 4, ModTime: now}))
				_, err := out.Write([]byte("more"))
				must(t, err)
			}
			must(t, errors.Join(out.Close(), up.Archive(t.Context(), strings.NewReader(archive.String()), tarstream.Limits{})))
			b, err = finish(t, s, b, up)
			must(t, err)
			text, err := os.ReadFile(filepath.Join(s.ContentsFile(b), "train.py"))
			if want := fmt.Sprint("lr = ", i); err != nil || string(text) != want {
				t.Errorf("%q, %v", text, err)
			}
		}
		if got := storedBytes(t, filepath.Join(at.dir, "bundles")); got > int64(len(weights))+100 {
			t.Errorf("%d bytes are stored", got)
		}
		if lines, _ := check(t, s, false); len(lines) > 0 {
			t.Errorf("found %q", lines)
		}
	})
}
