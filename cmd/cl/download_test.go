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

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

// uploaded returns the uuid of a bundle with these contents.
func (s *transferSite) uploaded(t *testing.T, name string, data []byte) string {
	t.Helper()
	return strings.TrimSpace(s.ends(t, 0, "upload", s.file(t, "from/"+name, data)).stdout)
}

func TestBrokenDownloadGoesOnWhereItBroke(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	data := random(300_000)
	uuid := s.uploaded(t, "big", data)
	s.heal()
	s.on("GET", "/blob/", once(breaks))
	to := filepath.Join(s.dir, "to", "big")
	s.file(t, "to/other", nil)
	r := s.ends(t, 0, "download", uuid, "-o", to, "--json")
	wantText(t, "standard error", r.stderr, "the connection broke: unexpected EOF: trying again.")
	wantText(t, "standard output", r.stdout, `"size": 300000`)
	if got, err := os.ReadFile(to); err != nil || !bytes.Equal(got, data) {
		t.Errorf("what arrived differs (%v)", err)
	}
	if diff := cmp.Diff([]string{"", "bytes=134464-199999", "bytes=200000-299999"}, s.called("GET")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"big", "other"}, s.left(t)); diff != "" {
		t.Error(diff)
	}
}

// TestKeptPartIsUsedForItsContentsOnly breaks a download for good, and calls cl again.
func TestKeptPartIsUsedForItsContentsOnly(t *testing.T) {
	t.Parallel()
	data := random(300_000)
	for name, test := range map[string]struct {
		change func(t *testing.T, s *transferSite, part string)
		want   []string // the ranges that cl asks for
	}{
		"as it was": {func(*testing.T, *transferSite, string) {}, []string{"bytes=134464-199999", "bytes=200000-299999"}},
		"damaged by a crash": {func(t *testing.T, _ *transferSite, part string) {
			t.Helper()
			if err := errors.Join(os.Truncate(part, 150_000), os.Truncate(part, 200_000)); err != nil {
				t.Error(err)
			}
		}, []string{"bytes=134464-199999", ""}},
		"behind a proxy without ranges": {func(_ *testing.T, s *transferSite, _ string) {
			s.on("GET", "/blob/", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				r.Header.Del("Range")
				next.ServeHTTP(w, r)
			})
		}, []string{"bytes=134464-199999", ""}},
		"of another bundle": {func(t *testing.T, _ *transferSite, part string) {
			t.Helper()
			if err := os.Rename(part, strings.TrimRight(part, "0123456789abcdef")+"0123456789abcdef"); err != nil {
				t.Error(err)
			}
		}, []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTransferSite(t, 1<<40)
			uuid := s.uploaded(t, "big", data)
			s.on("GET", "/blob/", func(w http.ResponseWriter, r *http.Request, next http.Handler) {
				if r.Header.Get("Range") != "" {
					answer(503, "soon")(w, r, next)
					return
				}
				breaks(w, r, next)
			})
			s.now = leaping()
			to := filepath.Join(s.dir, "to", "big")
			s.file(t, "to/other", nil)
			r := s.ends(t, 3, "download", uuid, "-o", to)
			wantText(t, "standard error", r.stderr, ": the same command goes on from there.\n")
			left := s.left(t)
			if len(left) != 2 || !strings.HasPrefix(left[0], ".big.part-") {
				t.Fatalf("left %q", left)
			}
			s.heal()
			test.change(t, s, filepath.Join(s.dir, "to", left[0]))
			s.ends(t, 0, "download", uuid, "-o", to)
			if diff := cmp.Diff(test.want, s.called("GET")); diff != "" {
				t.Error(diff)
			}
			if got, err := os.ReadFile(to); err != nil || !bytes.Equal(got, data) {
				t.Errorf("what arrived differs (%v)", err)
			}
		})
	}
}

func TestBrokenDownloadOfADirectoryBeginsAnew(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	file := s.file(t, "from/d/f", random(300_000))
	s.ends(t, 0, "upload", filepath.Dir(file))
	s.on("GET", "/blob/", once(breaks))
	to := filepath.Join(s.dir, "to", "d")
	s.file(t, "to/other", nil)
	s.ends(t, 0, "download", "d", "-o", to)
	if got, err := os.ReadFile(filepath.Join(to, "f")); err != nil || !bytes.Equal(got, random(300_000)) {
		t.Errorf("what arrived differs (%v)", err)
	}
	s.on("GET", "/blob/", breaks)
	s.now = leaping()
	r := s.ends(t, 3, "download", "d", "-o", to+"2")
	wantText(t, "standard error", r.stderr, "the connection broke")
	if diff := cmp.Diff([]string{"d", "other"}, s.left(t)); diff != "" {
		t.Error(diff)
	}
}

func TestInterruptedDownloadKeepsOnlyWhatCanGoOn(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"file", "directory"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTransferSite(t, 1<<40)
			what := s.file(t, "from/d/f", random(300_000))
			if name == "directory" {
				what = filepath.Dir(what)
			}
			uuid := strings.TrimSpace(s.ends(t, 0, "upload", what).stdout)
			to := filepath.Join(s.dir, "to", "x")
			s.file(t, "to/other", nil)
			// Some of the file is there already.
			s.on("GET", "/blob/", breaks)
			s.now = leaping()
			s.ends(t, 3, "download", uuid, "-o", to)
			ctx, interrupt := context.WithCancel(t.Context())
			s.on("GET", "/blob/", func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
				interrupt()
				<-r.Context().Done()
			})
			r := s.cl(ctx, nil, "download", uuid, "-o", to)
			if r.code != program.ExitInterrupted {
				t.Errorf("got %+v", r)
			}
			kept := len(s.left(t)) == 2
			if said := strings.Contains(r.stderr, "are kept in"); kept != said || kept != (name == "file") {
				t.Errorf("kept a part: %v; said so: %v", kept, said)
			}
		})
	}
}

func TestDownloadNamesWhatIsWrongHere(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	uuid := s.uploaded(t, "f", []byte("x"))
	r := s.ends(t, 1, "download", uuid, "-o", filepath.Join(s.dir, "nosuch", "f"))
	wantText(t, "standard error", r.stderr, "/nosuch: no such file or directory. Choose another path with -o.\n")
	d := download{final: filepath.Join(s.dir, "f")}
	if err := d.checkDisk(1 << 62); err == nil || !strings.Contains(err.Error(), "4194304t more are needed, but the disk of "+s.dir+" has only ") {
		t.Errorf("got %v", err)
	}
}
