package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// uploadSite is a transferSite with a directory proj for cl run --upload.
func uploadSite(t *testing.T) (*transferSite, []string) {
	t.Helper()
	s := newTransferSite(t, 1<<40)
	s.file(t, "proj/train.py", []byte("print(1)\n"))
	s.file(t, "proj/lib/model.py", random(100_000))
	return s, []string{"run", "--upload", filepath.Join(s.dir, "proj"), "python train.py", "-n", "run"}
}

func TestInterruptedRunWithAnUploadMakesNothingTwice(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]struct {
		method, path string
		nth          int // of such calls
	}{
		"before the upload": {"POST", "/rest/bundles", 1},
		"in the upload":     {"PUT", "/blob/", 1},
		"after the upload":  {"POST", "/rest/bundles", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, command := uploadSite(t)
			ctx, interrupt := context.WithCancel(t.Context())
			calls := 0
			s.on(at.method, at.path, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if calls++; calls == at.nth {
					interrupt()
				}
				next.ServeHTTP(w, r)
			})
			if r := s.cl(ctx, strings.NewReader(""), command...); r.code != program.ExitInterrupted || r.stdout != "" {
				t.Errorf("got %+v", r)
			}
			s.heal()
			s.ends(t, 0, command...)
			s.ends(t, 0, append(command, "-m")...)
			if diff := cmp.Diff([]string{"proj ready", "run staged"}, onceEach(s.bundles(t))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// onceEach returns names of bundles with the states that runs have before a worker takes them as one.
func onceEach(names []string) []string {
	seen := map[string]bool{}
	var list []string
	for _, name := range names {
		name = strings.Replace(name, "run created", "run staged", 1)
		if name == "run staged" && seen[name] {
			continue // an item of --memoize
		}
		seen[name] = true
		list = append(list, name)
	}
	return list
}

func TestOnlyTheUsersOwnReadyUploadIsUsedAgain(t *testing.T) {
	t.Parallel()
	s, command := uploadSite(t)
	s.on("PUT", "/blob/", answer(400, "Upload failed: no"))
	s.ends(t, 1, command...)
	s.heal()
	s.ends(t, 0, command...)
	// Another bundle has the tag, and is not ready.
	sheet, err := s.api.FindWorksheet(t.Context(), "", client.HomeWorksheet)
	if err != nil {
		t.Fatal(err)
	}
	found, _, err := s.api.SearchBundles(t.Context(), "", []string{"name=proj"})
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	m := defaultMetadata(codalab.TypeDataset)
	m["name"], m["tags"] = "begun", found[0].Metadata.Strings("tags")
	_, err = s.api.CreateBundle(t.Context(), client.NewBundle{Worksheet: sheet.UUID, Type: codalab.TypeDataset, WaitForUpload: true, Metadata: m})
	if err != nil {
		t.Fatal(err)
	}
	if r := s.ends(t, 0, append(command, "--json")...); !strings.Contains(r.stdout, found[0].UUID) {
		t.Errorf("used %s, want %s", r.stdout, found[0].UUID)
	}
	// A server that finds a bundle of somebody else is not believed.
	s.on("GET", "/rest/user", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		next.ServeHTTP(renaming{w, found[0].OwnerID}, r)
	})
	if r := s.ends(t, 0, append(command, "--json")...); strings.Contains(r.stdout, found[0].UUID) {
		t.Errorf("used the bundle of another user: %s", r.stdout)
	}
}

// renaming gives the user of an answer another id.
type renaming struct {
	http.ResponseWriter

	id string
}

// Write writes the answer.
func (r renaming) Write(b []byte) (int, error) {
	_, err := r.ResponseWriter.Write([]byte(strings.ReplaceAll(string(b), r.id, "0x"+strings.Repeat("1", len(r.id)-2))))
	return len(b), err
}

func TestDirectoryThatChangesWhileItIsSentIsNoBundle(t *testing.T) {
	t.Parallel()
	s, command := uploadSite(t)
	s.on("POST", "/rest/bundles", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if err := os.Chtimes(filepath.Join(s.dir, "proj/train.py"), time.Time{}, time.Unix(1, 0)); err != nil {
			t.Error(err)
		}
		next.ServeHTTP(w, r)
	})
	r := s.ends(t, 1, command...)
	wantText(t, "standard error", r.stderr, "proj: train.py was changed meanwhile; run the command again")
	wantText(t, "standard error", r.stderr, "was removed again")
	if left := s.bundles(t); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

func TestSizeThatSurprisesIsSaidBeforeItIsSent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, size := range map[string]int64{"a": 9, "big": 1 << 30, "c": 100_000, "d": 8} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(file, nil, 0o644), os.Truncate(file, size)); err != nil {
			t.Fatal(err)
		}
	}
	var stderr bytes.Buffer
	c := &cli{Process: program.Process{Stderr: &stderr, Getenv: func(string) string { return "" }}}
	src, err := c.readSource(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	src.announce()
	wantText(t, "standard error", stderr.String(), dir+" is 1.0g in 4 files, the largest in big (1g), c (97.7k), a (9); .clignore leaves files out, and Ctrl-C ends this.")
}

func TestTooManyEntriesAreRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	s, command := uploadSite(t)
	for i := range maxTop {
		s.file(t, "proj/f"+strings.Repeat("x", i%100)+string(rune('a'+i/100)), nil)
	}
	r := s.ends(t, 1, command...)
	wantText(t, "standard error", r.stderr, "it has 1002 entries at its top, and a run may have 1000 of them: put files into directories, or name some in .clignore.")
	s = newTransferSite(t, 1000)
	s.file(t, "proj/f", random(2000))
	r = s.ends(t, 1, "run", "--upload", filepath.Join(s.dir, "proj"), "x")
	wantText(t, "standard error", r.stderr, "The upload needs 2.0k, but only 1000 of your disk quota of 1000 are left.")
	if left := s.bundles(t); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}
