package atomicfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
)

func TestWriteReplacesWholeAndLeavesNoTemporary(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "status.json")
	for _, data := range []string{"a long first content", "second"} {
		if err := atomicfile.Write(path, []byte(data), 0o640); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != data {
			t.Fatalf("read %q, %v; want %q", got, err, data)
		}
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("directory holds %v (%v), want the one file", entries, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v; want 0640", info.Mode(), err)
	}
}

func TestJSONIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "record.json")
	var got struct{ A int }
	if err := atomicfile.ReadJSON(path, &got); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an absent file: %v", err)
	}
	if err := errors.Join(atomicfile.WriteJSON(path, map[string]int{"A": 7}), atomicfile.ReadJSON(path, &got)); err != nil || got.A != 7 {
		t.Errorf("%+v, %v", got, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v; want that only the owner may read it", info, err)
	}
	if err := errors.Join(os.WriteFile(path, []byte("{"), 0o600), atomicfile.ReadJSON(path, &got)); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a file that was cut short: %v", err)
	}
	if err := atomicfile.WriteJSON(path, func() {}); err == nil {
		t.Error("a value that JSON cannot hold was written")
	}
}

// Only a crash could show that the files are flushed. The test shows that no kind of file
// makes the flush fail, and that a missing tree does.
func TestTreeIsFlushedWhateverItHolds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700), os.Symlink("nowhere", filepath.Join(dir, "link")),
		syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600), os.WriteFile(filepath.Join(dir, "a", "closed"), []byte("x"), 0o400)); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.SyncTree(dir); err != nil {
		t.Error(err)
	}
	for n := range 100 { // many
		if err := os.WriteFile(filepath.Join(dir, "a", strconv.Itoa(n)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := atomicfile.SyncTree(dir); err != nil {
		t.Error(err)
	}
	for _, flush := range []func(string) error{atomicfile.SyncTree, atomicfile.SyncDisk, atomicfile.SyncDir} {
		if err := flush(filepath.Join(dir, "absent")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("flushed what is not there: %v", err)
		}
	}
}

func TestFailedWriteLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	target := filepath.Join(dir, "taken")
	if err := os.MkdirAll(filepath.Join(target, "child"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Write(target, []byte("x"), 0o600); err == nil {
		t.Fatal("a directory was replaced by a file")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("directory holds %v (%v), want only what was there", entries, err)
	}
}
