package staging_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

const mib = 1 << 20

const run1 = "0x00000000000000000000000000000001"

// data makes a directory of files that do not compress.
func data(t *testing.T, files, size int) string {
	t.Helper()
	dir := t.TempDir()
	random := rand.NewChaCha8([32]byte{1})
	for i := range files {
		text := make([]byte, size)
		_, _ = random.Read(text)
		ok(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("f%03d", i)), text, 0o644))
	}
	return dir
}

// heard collects sentences.
type heard struct {
	mu   sync.Mutex
	said []string
}

func (h *heard) add(s string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said = append(h.said, s)
}

func (h *heard) has(part string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.said {
		if strings.Contains(s, part) {
			return true
		}
	}
	return false
}

func TestSixtyFourBundlesShareOneDownloadAndReportIt(t *testing.T) {
	t.Parallel()
	site := startCodaLab(t)
	dir := data(t, 12, mib)
	d := codalab.Dependency{ChildPath: "data", ParentUUID: site.upload(dir), ParentName: "corpus"}
	s := stager(t, site.client, t.TempDir(), "one")
	s.Dependencies.Pace = transfer.NewPace(12 * mib) // a second, so that there is progress to report
	var all sync.WaitGroup
	sources := make([]string, 64)
	for i := range sources {
		all.Go(func() {
			run, h := wants(d), &heard{}
			run.UUID = fmt.Sprintf("0x%032x", i)
			inputs, err := s.Stage(t.Context(), run, site.image, "", h.add)
			if err != nil {
				t.Error(err)
				return
			}
			sources[i] = inputs.Dependencies[0].Source
			if !h.has("ownloading dependency data (corpus)") {
				t.Errorf("bundle %d heard %q", i, h.said)
			}
		})
	}
	all.Wait()
	for _, source := range sources {
		if source != sources[0] {
			t.Errorf("%s and %s", source, sources[0])
		}
	}
	shows(t, dir, sources[0])
	if sent := site.sent.Load(); sent > 12*mib+mib/2 {
		t.Errorf("%d bytes were sent for 12 MiB", sent)
	}
	if n := site.resolved.Load(); n != 1 {
		t.Errorf("the registry was asked %d times what the image is", n)
	}
}

// stagingFor is the variable that makes the test binary a bridge that stages until it is killed:
// ADDRESS IMAGE PARENT CACHE.
const stagingFor = "STAGING_TEST_STAGES"

func TestMain(m *testing.M) {
	if words := strings.Split(os.Getenv(stagingFor), " "); len(words) == 4 {
		t := &testing.T{}
		s := stager(t, dial(t, words[0]), words[3], "")
		_, err := s.Stage(context.Background(), wants(codalab.Dependency{ChildPath: "data", ParentUUID: words[2]}), words[1], "", func(string) {})
		fmt.Println(err)
		os.Exit(1) // the test should have killed it
	}
	os.Exit(m.Run())
}

func TestDownloadOfAKilledBridgeGoesOn(t *testing.T) {
	t.Parallel()
	site := startCodaLab(t)
	dir := data(t, 24, mib)
	parent := site.upload(dir)
	shared := t.TempDir()
	site.hold.Store(17 * mib)
	program := testenv.Again(t, stagingFor+"="+strings.Join([]string{site.address, site.image, parent, shared}, " "))
	testenv.Await(t, "17 MiB are sent", func() bool { return site.sent.Load() >= 17*mib })
	program.Kill()
	_, _ = io.Copy(io.Discard, program) // until it has ended
	site.hold.Store(0)
	s := stager(t, site.client, shared, "")
	inputs, err := s.Stage(t.Context(), wants(codalab.Dependency{ChildPath: "data", ParentUUID: parent}), site.image, "", func(string) {})
	ok(t, err)
	shows(t, dir, inputs.Dependencies[0].Source)
	if sent := site.sent.Load(); sent > 38*mib { // from the beginning it would be at least 41
		t.Errorf("%d bytes were sent for 24 MiB", sent)
	}
}

// A range counts in bytes of the file, even if the answer is compressed.
func TestCompressedFileGoesOnAfterABreak(t *testing.T) {
	t.Parallel()
	site := startCodaLab(t)
	file := filepath.Join(data(t, 1, 8*mib), "f000")
	parent := site.upload(file)
	c, err := client.New(site.address, client.Options{Credentials: alice, Compress: true})
	ok(t, err)
	site.cut.Store(3 * mib)
	inputs, err := stager(t, c, t.TempDir(), "").Stage(t.Context(), wants(codalab.Dependency{ChildPath: "data", ParentUUID: parent}), site.image, "", func(string) {})
	ok(t, err)
	shows(t, file, inputs.Dependencies[0].Source)
	if sent := site.sent.Load(); sent > 9*mib {
		t.Errorf("%d bytes were sent for 8 MiB", sent)
	}
}

func TestWhatIsSeenOfAParent(t *testing.T) {
	t.Parallel()
	site := startCodaLab(t)
	dir := data(t, 2, 1000)
	ok(t, errors.Join(
		os.MkdirAll(filepath.Join(dir, "sub/deep"), 0o755), os.WriteFile(filepath.Join(dir, "sub/deep/x"), []byte("deep"), 0o755),
		os.Symlink("f000", filepath.Join(dir, "link"))))
	parent := site.upload(dir)
	single := site.upload(filepath.Join(dir, "f001"))
	s := stager(t, site.client, t.TempDir(), "")
	inputs, err := s.Stage(t.Context(), wants(
		codalab.Dependency{ChildPath: "", ParentUUID: parent},
		codalab.Dependency{ChildPath: "one", ParentUUID: parent, ParentPath: "f000"},
		codalab.Dependency{ChildPath: "part", ParentUUID: parent, ParentPath: "sub/deep"},
		codalab.Dependency{ChildPath: "single", ParentUUID: single},
		codalab.Dependency{ChildPath: "program", ParentUUID: parent, ParentPath: "sub/deep/x"},
	), site.image, "", func(string) {})
	ok(t, err)
	for i, want := range []string{dir, filepath.Join(dir, "f000"), filepath.Join(dir, "sub/deep"), filepath.Join(dir, "f001"), filepath.Join(dir, "sub/deep/x")} {
		shows(t, want, inputs.Dependencies[i].Source)
	}
	if info, err := os.Stat(inputs.Dependencies[4].Source); err != nil || info.Mode().Perm()&0o100 == 0 {
		t.Errorf("a program has mode %v, %v", info, err)
	}
	for path, want := range map[string]string{
		"no/such": "dependency in (" + parent + "/no/such): Path 'no/such' in bundle " + parent + " not found",
		"link":    "dependency in (" + parent + "/link): it is a symbolic link, which the server does not send: name its target instead",
	} {
		_, err := s.Stage(t.Context(), wants(codalab.Dependency{ChildPath: "in", ParentUUID: parent, ParentPath: path}), site.image, "", func(string) {})
		var e *transfer.Error
		if !errors.As(err, &e) || e.Transient() || e.Outage() || e.Error() != want {
			t.Errorf("%s: error %q, want %q, for good", path, err, want)
		}
	}
	gone := "0x" + strings.Repeat("9", 32)
	_, err = s.Stage(t.Context(), wants(codalab.Dependency{ChildPath: "in", ParentUUID: gone}), site.image, "", func(string) {})
	var e *transfer.Error
	if !errors.As(err, &e) || e.Transient() || !strings.Contains(e.Error(), "have none, need read") {
		t.Errorf("a bundle that was deleted: error %v", err)
	}
}

func TestServerThatComesBackSoonIsNotMissed(t *testing.T) {
	t.Parallel()
	site := startCodaLab(t)
	parent := site.upload(data(t, 1, 10))
	site.down.Store(true)
	time.AfterFunc(500*time.Millisecond, func() { site.down.Store(false) })
	_, err := stager(t, site.client, t.TempDir(), "").Stage(t.Context(), wants(codalab.Dependency{ChildPath: "in", ParentUUID: parent}), site.image, "", func(string) {})
	ok(t, err)
}

func TestBundleOfAnotherBridgeIsWaitedFor(t *testing.T) {
	t.Parallel()
	site := startCodaLab(t)
	dir := data(t, 10, mib)
	d := codalab.Dependency{ChildPath: "data", ParentUUID: site.upload(dir)}
	shared := t.TempDir()
	first, second := stager(t, site.client, shared, "one"), stager(t, site.client, shared, "two")
	first.Dependencies.Pace = transfer.NewPace(4 * mib)
	filling := make(chan error, 1)
	go func() {
		_, err := first.Stage(t.Context(), wants(d), site.image, "", func(string) {})
		filling <- err
	}()
	testenv.Await(t, "the first transfer has begun", func() bool { return site.sent.Load() > 0 })
	h := &heard{}
	inputs, err := second.Stage(t.Context(), wants(d), site.image, "", h.add)
	ok(t, errors.Join(err, <-filling))
	shows(t, dir, inputs.Dependencies[0].Source)
	if !h.has("which another process fetches (host one, process ") || site.sent.Load() > 11*mib {
		t.Errorf("heard %q; %d bytes were sent for 10 MiB", h.said, site.sent.Load())
	}
}
