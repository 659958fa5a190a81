package fetch_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/staging/fetch"
)

const mib = 1 << 20

// file makes a site with one file.
func file(t *testing.T, size int) (*site, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data")
	must(t, os.WriteFile(path, noise(1, size), 0o644))
	must(t, os.Chmod(path, 0o755))
	return &site{dir: filepath.Dir(path)}, path
}

func TestFileGoesOnWhereItsConnectionBroke(t *testing.T) {
	t.Parallel()
	s, path := file(t, 10*mib+7)
	s.cut = breaks(4*mib, 2*mib)
	tmp := filepath.Join(t.TempDir(), "content")
	must(t, get(t.Context(), s.start(t), tmp, "data"))
	same(t, path, tmp)
	if most := int64(13 * mib); s.sent > most { // data of a broken range is lost
		t.Errorf("%d bytes were sent, want at most %d", s.sent, most)
	}
	if s.requests[0].ranged || !s.requests[1].ranged {
		t.Errorf("asked for %v, want the rest by ranges", s.requests)
	}
}

// If the answer to a range is the beginning of the file and the connection breaks, the arrived data
// must not count as the range.
func TestServerThatIgnoresRangesSpoilsNothing(t *testing.T) {
	t.Parallel()
	s, path := file(t, 10*mib+7)
	s.cut, s.deaf = breaks(4*mib, 2*mib), true
	tmp := filepath.Join(t.TempDir(), "content")
	must(t, get(t.Context(), s.start(t), tmp, "data"))
	same(t, path, tmp)
}

func TestEmptyFileComes(t *testing.T) {
	t.Parallel()
	s, path := file(t, 0)
	tmp := filepath.Join(t.TempDir(), "content")
	must(t, get(t.Context(), s.start(t), tmp, "data"))
	same(t, path, tmp)
}

func TestLargeDirectoryGoesOnByItsTree(t *testing.T) {
	t.Parallel()
	dir := fill(t, 24, mib)
	size := int64(24 * mib)
	s := &site{dir: dir, cut: breaks(16 * mib)}
	tmp := filepath.Join(t.TempDir(), "content")
	must(t, get(t.Context(), s.start(t), tmp, ""))
	same(t, dir, tmp)
	if s.sent > size+3*mib {
		t.Errorf("%d bytes were sent, want about %d", s.sent, size)
	}
}

// If it costs no more, the archive is fetched again: it has the times and the hard links.
func TestSmallDirectoryComesWholeAgain(t *testing.T) {
	t.Parallel()
	dir := fill(t, 40, 20<<10)
	old := time.Now().Add(-1000 * time.Hour).Truncate(time.Second)
	must(t, os.Chtimes(filepath.Join(dir, "z/f0002"), old, old))
	s := &site{dir: dir, cut: breaks(500 << 10)}
	tmp := filepath.Join(t.TempDir(), "content")
	must(t, get(t.Context(), s.start(t), tmp, ""))
	same(t, dir, tmp)
	info, err := os.Stat(filepath.Join(tmp, "z/f0002"))
	must(t, err)
	one, err := os.Stat(filepath.Join(tmp, "m/run.sh"))
	must(t, err)
	two, err := os.Stat(filepath.Join(tmp, "z/same.sh"))
	must(t, err)
	if !info.ModTime().Equal(old) || !os.SameFile(one, two) {
		t.Errorf("time %v, want %v; hard link kept: %v", info.ModTime(), old, os.SameFile(one, two))
	}
}

func TestDirectoryOfOneLargeFileGoesOnToo(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "contents")
	must(t, os.Mkdir(dir, 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "model"), noise(3, 12*mib), 0o644))
	s := &site{dir: dir, cut: func(n int, r request) int64 {
		if r.path == "" && n > 0 {
			return 5 * mib // archives always break off
		}
		return []int64{5 * mib, 5 * mib, 6 * mib}[min(n, 2)]
	}}
	tmp := filepath.Join(t.TempDir(), "content")
	must(t, get(t.Context(), s.start(t), tmp, ""))
	same(t, dir, tmp)
}

func TestTreeThatCannotBeUsedIsNotUsed(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, s *site){
		"refused": func(_ *testing.T, s *site) { s.noList = true },
		"a name that is not UTF-8": func(t *testing.T, s *site) {
			t.Helper()
			must(t, os.WriteFile(filepath.Join(s.dir, "z/bad\xff"), []byte("x"), 0o644))
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &site{dir: fill(t, 8, 2*mib), cut: breaks(14 * mib)}
			change(t, s)
			tmp := filepath.Join(t.TempDir(), "content")
			must(t, get(t.Context(), s.start(t), tmp, ""))
			same(t, s.dir, tmp)
			for _, r := range s.requests {
				if r.path != "" {
					t.Errorf("asked for %v", s.requests)
				}
			}
		})
	}
}

// After any faults at any time, the result equals the server's data.
func TestNoBreakEverSpoilsATree(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 1))
			dir := fill(t, 1+random.IntN(30), random.IntN(mib))
			s := &site{dir: dir, deaf: seed%3 == 0}
			calls := 0
			s.cut = func(int, request) int64 {
				s.mu.Lock()
				defer s.mu.Unlock()
				if calls++; calls > 12 || random.IntN(3) == 0 {
					return -1
				}
				return random.Int64N(3 * mib)
			}
			from := s.start(t)
			tmp := filepath.Join(t.TempDir(), "content")
			err := errors.New("not begun")
			for range 20 { // like a bridge
				if err = get(t.Context(), from, tmp, ""); err == nil {
					break
				}
			}
			must(t, err)
			same(t, dir, tmp)
		})
	}
}

// fetching is the variable that makes the test binary a program that fetches: ADDRESS SUBPATH PATH.
const fetching = "FETCH_TEST_FETCHES"

func TestMain(m *testing.M) {
	if words := strings.Split(os.Getenv(fetching), " "); len(words) == 3 {
		from, err := client.New(words[0], client.Options{})
		if err == nil {
			err = get(context.Background(), from, words[2], words[1])
		}
		fmt.Println(err)
		os.Exit(1) // the test should have killed it
	}
	os.Exit(m.Run())
}

func TestWorkOfAKilledProgramIsContinued(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		subpath    string
		make       func(t *testing.T) (*site, string)
		after      int64
		size, more int64
	}{
		"file": {"data", func(t *testing.T) (*site, string) { t.Helper(); return file(t, 36*mib) }, 34 * mib, 36 * mib, 19 * mib},
		"directory": {"", func(t *testing.T) (*site, string) {
			t.Helper()
			dir := fill(t, 24, mib)
			return &site{dir: dir}, dir
		}, 18 * mib, 24 * mib, 8 * mib},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, want := test.make(t)
			reached, release := make(chan struct{}), make(chan struct{})
			s.hold = func(n int) (int64, func()) {
				if n > 0 {
					return -1, nil
				}
				return test.after, func() { close(reached); <-release }
			}
			from := s.start(t)
			tmp := filepath.Join(t.TempDir(), "content")
			program := testenv.Again(t, fetching+"="+from.Address()+" "+test.subpath+" "+tmp)
			<-reached
			holds(t, filepath.Dir(tmp), test.after-4*mib)
			program.Kill()
			_, _ = io.Copy(io.Discard, program) // until it has ended
			close(release)
			must(t, get(t.Context(), from, tmp, test.subpath))
			same(t, want, tmp)
			if s.sent > test.size+test.more {
				t.Errorf("%d bytes were sent, want at most %d more than %d", s.sent, test.more, test.size)
			}
		})
	}
}

func TestWhatTheJournalDoesNotSayIsFetchedAgain(t *testing.T) {
	t.Parallel()
	dir := fill(t, 8, 2*mib)
	tests := map[string]func(t *testing.T, tmp string){
		"a file of the right size that no line names": func(t *testing.T, tmp string) {
			t.Helper()
			info, err := os.Stat(filepath.Join(dir, "f0000"))
			must(t, err)
			must(t, os.WriteFile(filepath.Join(tmp, "f0000"), make([]byte, info.Size()), 0o644))
			change(t, tmp, `"f0000"`, `"another"`)
		},
		"a line that was cut off": func(t *testing.T, tmp string) {
			t.Helper()
			must(t, os.WriteFile(filepath.Join(tmp, "f0000"), noise(9, 2*mib), 0o644))
			text, err := os.ReadFile(filepath.Join(filepath.Dir(tmp), "journal"))
			must(t, err)
			cut := strings.Index(string(text), `"f0000"`) + 3
			must(t, os.WriteFile(filepath.Join(filepath.Dir(tmp), "journal"), text[:cut], 0o600))
		},
		"another start of the machine": func(t *testing.T, tmp string) {
			t.Helper()
			must(t, os.WriteFile(filepath.Join(tmp, "f0000"), noise(9, 2*mib), 0o644))
			boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
			must(t, err)
			change(t, tmp, strings.TrimSpace(string(boot)), "another")
		},
		"no journal": func(t *testing.T, tmp string) {
			t.Helper()
			must(t, os.WriteFile(filepath.Join(tmp, "f0000"), noise(9, 2*mib), 0o644))
			must(t, os.Remove(filepath.Join(filepath.Dir(tmp), "journal")))
		},
		"a file that is gone": func(t *testing.T, tmp string) { t.Helper(); must(t, os.Remove(filepath.Join(tmp, "f0000"))) },
		"all is gone":         func(t *testing.T, tmp string) { t.Helper(); must(t, os.RemoveAll(tmp)) },
		"a file that was not there": func(t *testing.T, tmp string) {
			t.Helper()
			must(t, os.WriteFile(filepath.Join(tmp, "m/extra"), nil, 0o644))
		},
		"a link where a directory was": func(t *testing.T, tmp string) {
			t.Helper()
			must(t, errors.Join(os.RemoveAll(filepath.Join(tmp, "m")), os.Symlink("z", filepath.Join(tmp, "m"))))
		},
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tmp := filepath.Join(t.TempDir(), "content")
			half(t, dir, tmp)
			spoil(t, tmp)
			s := &site{dir: dir}
			must(t, get(t.Context(), s.start(t), tmp, ""))
			same(t, dir, tmp)
		})
	}
}

// half fetches a part of a tree.
func half(t *testing.T, dir, tmp string) {
	t.Helper()
	s := &site{dir: dir}
	ctx, cancel := context.WithCancel(t.Context())
	reached, release := make(chan struct{}), make(chan struct{})
	s.hold = func(int) (int64, func()) { return 11 * mib, func() { close(reached); <-release } }
	done := make(chan error, 1)
	from := s.start(t)
	go func() { done <- get(ctx, from, tmp, "") }()
	<-reached
	holds(t, filepath.Dir(tmp), 10*mib)
	cancel()
	if err := <-done; err == nil {
		t.Fatal("a fetch that was ended succeeded")
	}
	close(release)
}

func change(t *testing.T, tmp, from, to string) {
	t.Helper()
	path := filepath.Join(filepath.Dir(tmp), "journal")
	text, err := os.ReadFile(path)
	must(t, err)
	if !strings.Contains(string(text), from) {
		t.Fatalf("the journal does not say %s:\n%s", from, text)
	}
	must(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(text), from, to)), 0o600))
}

func TestRefusalsAreTheServersOwn(t *testing.T) {
	t.Parallel()
	dir := fill(t, 4, 100)
	s := &site{dir: dir}
	from := s.start(t)
	for subpath, want := range map[string]func(error) bool{
		"no/such": func(err error) bool {
			var serverErr *codalab.Error
			return errors.As(err, &serverErr) && serverErr.Message == "Path 'no/such' in bundle "+parent+" not found"
		},
		"run": func(err error) bool { return errors.Is(err, fetch.ErrLink) },
	} {
		tmp := filepath.Join(t.TempDir(), "content")
		if err := get(t.Context(), from, tmp, subpath); !want(err) {
			t.Errorf("%s: error %v", subpath, err)
		}
	}
	for subpath, limits := range map[string]tarstream.Limits{"": {Entries: 3}, "m": {Bytes: 50}, "f0000": {Bytes: 99}} {
		tmp := filepath.Join(t.TempDir(), "content")
		f := fetch.Fetch{From: from, Target: codalab.Target{BundleUUID: parent, Subpath: subpath}, Limits: limits}
		if err := f.To(t.Context(), tmp); !errors.Is(err, tarstream.ErrTooLarge) {
			t.Errorf("%q: error %v", subpath, err)
		}
		if entries, err := os.ReadDir(filepath.Dir(tmp)); err != nil || len(entries) != 0 {
			t.Errorf("left behind: %v, %v", entries, err)
		}
	}
}
