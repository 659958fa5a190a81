package appendfile_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/appendfile"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

var must = testenv.Must

// open opens a file that the test closes, and whose rotations do not fail.
func open(t *testing.T, path string, r appendfile.Rotation) *appendfile.File {
	t.Helper()
	r.Failed = func(err error) { t.Error(err) }
	f, err := appendfile.Open(path, r)
	must(t, err)
	t.Cleanup(func() { must(t, f.Close()) })
	return f
}

func add(t *testing.T, f *appendfile.File, lines ...string) {
	t.Helper()
	for _, line := range lines {
		n, err := f.Write([]byte(line + "\n"))
		must(t, err)
		if n != len(line)+1 {
			t.Errorf("%q: %d bytes", line, n)
		}
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return strings.ReplaceAll(string(text), "\n", "|")
}

func TestLinesAreAppendedAndPrivate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit")
	add(t, open(t, path, appendfile.Rotation{}), "1", "2")
	add(t, open(t, path, appendfile.Rotation{}), "3")
	if got := content(t, path); got != "1|2|3|" {
		t.Errorf("%s", got)
	}
	info, err := os.Stat(path)
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
}

func TestRotationKeepsABoundedNumberOfFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit")
	f := open(t, path, appendfile.Rotation{Size: 8, Keep: 2})
	for n := range 8 {
		add(t, f, fmt.Sprintf("a%d", n))
	}
	add(t, f, "longer than a file")
	for name, want := range map[string]string{"": "longer than a file|", ".1": "a6|a7|", ".2": "a4|a5|"} {
		if got := content(t, path+name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if left, err := filepath.Glob(path + "*"); err != nil || len(left) != 3 {
		t.Errorf("%q, %v", left, err)
	}
}

func TestSeveralWritersMixNoLines(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit")
	f := open(t, path, appendfile.Rotation{Size: 500, Keep: 100})
	var all sync.WaitGroup
	for n := range 20 {
		all.Go(func() {
			for range 10 {
				if _, err := f.Write([]byte(strings.Repeat(string(rune('a'+n)), 20) + "\n")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	lines := 0
	files, err := filepath.Glob(path + "*")
	must(t, err)
	for _, name := range files {
		for line := range strings.SplitSeq(strings.TrimSuffix(content(t, name), "|"), "|") {
			lines++
			if line != strings.Repeat(line[:1], 20) {
				t.Errorf("%s: %q", name, line)
			}
		}
	}
	if lines != 200 {
		t.Errorf("%d lines", lines)
	}
}

func TestFileThatWasMovedIsMadeAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit")
	f := open(t, path, appendfile.Rotation{})
	add(t, f, "1")
	must(t, os.Rename(path, path+".old"))
	add(t, f, "2")
	must(t, os.Remove(path))
	add(t, f, "3")
	if old, now := content(t, path+".old"), content(t, path); old != "1|" || now != "3|" {
		t.Errorf("%s %s", old, now)
	}
}

func TestFileOfOthersIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.WriteFile(at("file"), nil, 0o600))
	must(t, os.WriteFile(at("shared"), nil, 0o600))
	must(t, os.Chmod(at("shared"), 0o620))
	must(t, os.Symlink(at("file"), at("link")))
	must(t, os.Mkdir(at("directory"), 0o700))
	for name, want := range map[string]string{"shared": "others may write it", "link": "too many levels of symbolic links", "directory": "is a directory", "none/file": "no such file"} {
		if _, err := appendfile.Open(at(name), appendfile.Rotation{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRotationThatFailsLosesNoLine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit")
	must(t, os.MkdirAll(filepath.Join(path+".1", "in the way"), 0o700))
	failed := 0
	f, err := appendfile.Open(path, appendfile.Rotation{Size: 2, Keep: 1, Failed: func(error) { failed++ }})
	must(t, err)
	t.Cleanup(func() { must(t, f.Close()) })
	add(t, f, "1", "2")
	if got := content(t, path); got != "1|2|" || failed != 1 {
		t.Errorf("%s, %d failures", got, failed)
	}
}

func TestFullDiskTearsNoLaterLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testenv.SmallDisk(t, dir, "size=64k,mode=0700")
	path, filler := filepath.Join(dir, "audit"), filepath.Join(dir, "filler")
	must(t, os.WriteFile(filler, make([]byte, 32<<10), 0o600))
	f := open(t, path, appendfile.Rotation{})
	line := strings.Repeat("x", 9999) + "\n"
	var err error
	whole := 0
	for err == nil {
		if _, err = f.Write([]byte(line)); err == nil {
			whole++
		}
	}
	if _, err := f.Write([]byte(line)); err == nil || whole == 0 {
		t.Errorf("after %d lines: %v", whole, err)
	}
	must(t, os.Remove(filler))
	add(t, f, "after")
	text, err := os.ReadFile(path)
	must(t, err)
	if !strings.HasPrefix(string(text), strings.Repeat(line, whole)) || !strings.HasSuffix(string(text), "\nafter\n") {
		t.Errorf("after %d whole lines: %q", whole, text[whole*len(line):])
	}
}
