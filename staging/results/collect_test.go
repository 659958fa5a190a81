package results

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/spool"
)

const run1 = "0x00000000000000000000000000000001"

// results is a shared disk with a run's results, and its Collector.
type results struct {
	*testing.T
	layout    spool.Layout
	runDir    string
	server    *directoryServer
	collector *Collector
	run       codalab.RunBundle
	said      []string
}

// left makes a run directory with these files.
func left(t *testing.T, files map[string]string) *results {
	t.Helper()
	r := &results{T: t, layout: spool.Layout(t.TempDir()), server: &directoryServer{bundles: t.TempDir()}}
	r.runDir = r.layout.RunDir(run1, "1-b1")
	for _, dir := range append(r.layout.Directories(), filepath.Dir(r.runDir)) {
		must(t, os.MkdirAll(dir, 0o700))
	}
	must(t, os.Rename(write(t, files), r.runDir))
	r.collector = &Collector{Contents: r.server, Layout: r.layout, Now: time.Now}
	r.run = codalab.RunBundle{UUID: run1}
	return r
}

func (r *results) collect(mode spool.ResultsMode) (string, error) {
	return r.collector.Collect(r.Context(), r.run, r.runDir, mode, func(said string) { r.said = append(r.said, said) })
}

func (r *results) mustCollect(mode spool.ResultsMode) string {
	r.Helper()
	said, err := r.collect(mode)
	must(r.T, err)
	return said
}

func (r *results) uploaded() []string { return names(r.T, filepath.Join(r.server.bundles, run1)) }

func (r *results) link(target, name string) {
	r.Helper()
	must(r.T, os.Symlink(target, filepath.Join(r.runDir, name)))
}

func TestCollectLeavesDependencyLinksAndExcludedOut(t *testing.T) {
	t.Parallel()
	r := left(t, map[string]string{
		"stdout": "out", "result/model.bin": "m", "result/log.tmp": "x", "checkpoints/1": "c", "keep.tmpx": "k",
	})
	r.link("/"+run1+"_dependencies/data", "data")
	r.link("/etc/passwd", "in")
	r.link("stdout", "own")
	r.run.Metadata = codalab.Metadata{"exclude_patterns": []any{"*.tmp", "checkpoints"}}
	r.run.Dependencies = []codalab.RunDependency{
		{Dependency: codalab.Dependency{ChildPath: "data"}}, {Dependency: codalab.Dependency{ChildPath: "in"}},
	}
	said := r.mustCollect(spool.ResultsUpload)
	// "in" is not the link to the dependency any more, but the command's own.
	want := []string{"in", "keep.tmpx", "own", "result", "result/model.bin", "stdout"}
	if diff := cmp.Diff(want, r.uploaded()); diff != "" {
		t.Errorf("uploaded (-want +got):\n%s", diff)
	}
	if said != "5 bytes in 6 entries" {
		t.Errorf("delivered %q", said)
	}
}

// halfCopied returns the leftovers of a killed worker's copy, and similar names.
func halfCopied() (left, others map[string]string) {
	name := spool.CopyPrefix(spool.NewToken())
	return map[string]string{name + "-1": "half", name + "-20": ""},
		map[string]string{"sub/" + name + "-1": "", name + "-3/in": "", name: "", name + "-4.txt": "", ".copying-1": ""}
}

func TestWhatAKilledWorkerHalfCopiedIsNoResult(t *testing.T) {
	t.Parallel()
	for _, mode := range []spool.ResultsMode{spool.ResultsUpload, spool.ResultsKeep} {
		half, others := halfCopied()
		files := maps.Clone(others)
		maps.Copy(files, half)
		r := left(t, files)
		r.mustCollect(mode)
		at := filepath.Join(r.server.bundles, run1)
		if mode == spool.ResultsKeep {
			at = r.layout.KeptDir(run1)
			if listing := r.sent("kept.txt"); strings.Count(listing, ".copying-") != len(others)+1 { // and a directory
				t.Errorf("listed:\n%s", listing)
			}
		}
		if diff := cmp.Diff(names(t, write(t, others)), names(t, at)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", mode, diff)
		}
	}
}

// CodaLab's own worker calls tar.
func TestExcludePatternsMeanWhatTheyMeanToTar(t *testing.T) {
	t.Parallel()
	tar, err := exec.LookPath("tar")
	if err != nil {
		t.Skip("no tar") // CodaLab needs it, too
	}
	files := map[string]string{}
	for _, name := range []string{
		"a", "a.tmp", ".hidden", "b/a", "b/c/a", "b/c/x.log", "logs/x.log", "logs/d/x.log", "x/logs/y.log", "[z", "d/[z", "1", "b/22", "b*",
	} {
		files[name] = ""
	}
	for _, pattern := range []string{
		"a", "*.tmp", "*", ".*", "b", "b/a", "b/*", "c/a", "./a", "./b/c", "logs/*.log", "*.log", "/a", "logs/", "x/*/y.log",
		"[z", "[0-9]", "[0-9]*", "[!0-9]", "[^a-z]", "?", "??", `b\*`, "", "*/x*", "l*g",
	} {
		r := left(t, files)
		// The directory itself is named only if the pattern does not exclude it.
		args := []string{"-C", r.runDir, "--quoting-style=literal", "--exclude=" + pattern, "-cvf", os.DevNull}
		if strings.HasPrefix(pattern, "./") {
			args = append(args, ".")
		} else {
			entries, err := os.ReadDir(r.runDir)
			must(t, err)
			for _, e := range entries {
				args = append(args, e.Name())
			}
		}
		pack := exec.Command(tar, args...)

		listed, err := pack.Output()
		must(t, err)
		var want []string
		for name := range strings.Lines(string(listed)) {
			if name = strings.Trim(strings.TrimPrefix(name, "./"), "/\n"); name != "" {
				want = append(want, name)
			}
		}
		slices.Sort(want)
		r.run.Metadata = codalab.Metadata{"exclude_patterns": []any{pattern}}
		r.mustCollect(spool.ResultsUpload)
		if diff := cmp.Diff(want, r.uploaded(), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("--exclude-patterns %q leaves (-tar +ours):\n%s", pattern, diff)
		}
	}
}

// It runs as an ordinary user, because root may read everything.
func TestWhatACommandClosedToItsOwnerIsCollected(t *testing.T) {
	t.Parallel()
	if os.Getuid() == 0 && !testenv.AsResearcher(t) {
		return
	}
	for _, mode := range []spool.ResultsMode{spool.ResultsUpload, spool.ResultsKeep} {
		r := left(t, map[string]string{"a/b/c": "kept", "stdout": "x", "old/x/y": "excluded"})
		r.run.Metadata = codalab.Metadata{"exclude_patterns": []any{"old"}}
		for _, name := range []string{"stdout", "a/b/c", "a", "old/x", "."} {
			must(t, os.Chmod(filepath.Join(r.runDir, name), 0o100))
		}
		must(t, os.Chmod(r.runDir, 0))
		r.mustCollect(mode)
		got, want := r.uploaded(), []string{"a", "a/b", "a/b/c", "stdout"}
		if mode == spool.ResultsKeep {
			got = names(t, r.layout.KeptDir(run1))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", mode, diff)
		}
	}
}

// longPath makes a file whose path is too long for an archive, after other files.
func (r *results) longPath() string {
	r.Helper()
	path := strings.Repeat("z/"+strings.Repeat("d", 200)+"/", 21) + "file"
	root, err := os.OpenRoot(r.runDir)
	must(r.T, err)
	must(r.T, errors.Join(root.MkdirAll(filepath.Dir(path), 0o700), root.WriteFile(path, nil, 0o600), root.Close()))
	return path
}

func TestResultsWithTooLongAPathAreRefusedBeforeAnyIsSent(t *testing.T) {
	t.Parallel()
	r := left(t, map[string]string{"stdout": "x"})
	path := r.longPath()
	_, err := r.collect(spool.ResultsUpload)
	if wantError(t, err, path[:100], false); len(err.Error()) > 400 {
		t.Errorf("the error is long: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(r.server.bundles, run1)); !os.IsNotExist(err) {
		t.Errorf("something was sent: %v", err)
	}
	r.run.Metadata = codalab.Metadata{"exclude_patterns": []any{"./z"}}
	r.mustCollect(spool.ResultsUpload)
	if diff := cmp.Diff([]string{"stdout"}, r.uploaded()); diff != "" {
		t.Errorf("uploaded without it (-want +got):\n%s", diff)
	}
}

func TestRefusedUploadKeepsTheServersWords(t *testing.T) {
	t.Parallel()
	r := left(t, map[string]string{"stdout": "x"})
	r.server.refuse = &codalab.Error{Method: "PUT", Status: 403, Message: "Contents cannot be modified, bundle already finalized."}
	_, err := r.collect(spool.ResultsUpload)
	var serverErr *codalab.Error
	if !errors.As(err, &serverErr) || serverErr.Transient() {
		t.Errorf("error %v, want the server's refusal", err)
	}
	// A server with a full disk blames the archive.
	r.server.refuse = &codalab.Error{Method: "PUT", Status: 400, Message: "Upload failed: Invalid archive upload: failed to unpack archive."}
	_, err = r.collect(spool.ResultsUpload)
	wantError(t, err, "failed to unpack archive", true)
}

func TestGoneWorkingDirectoryIsFinalWhereTheDiskIsThere(t *testing.T) {
	t.Parallel()
	for _, mode := range []spool.ResultsMode{spool.ResultsUpload, spool.ResultsKeep} {
		r := left(t, nil)
		must(t, os.Remove(r.runDir))
		_, err := r.collect(mode)
		wantError(t, err, "is gone", false)
		must(t, os.RemoveAll(r.layout.Runs())) // as if the disk is not mounted
		_, err = r.collect(mode)
		wantError(t, err, "find the shared disk", true)
	}
}

// slowServer reads an upload at a megabyte a second.
type slowServer struct {
	*directoryServer

	rate int // bytes in a second
}

func (s slowServer) UploadContents(_ context.Context, _ string, _ client.UploadOptions, body io.Reader) error {
	for buf := make([]byte, max(1, s.rate/16)); ; {
		n, err := body.Read(buf)
		time.Sleep(time.Duration(n) * time.Second / time.Duration(s.rate))
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func TestUploadTellsHowMuchOfHowMuchAtWhatRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, uploadTells)
}

func uploadTells(t *testing.T) {
	noise := func(n int) string { // it does not compress
		var b strings.Builder
		for x := uint32(1); b.Len() < n; x = x*1664525 + 1013904223 {
			b.WriteByte(byte(x >> 24))
		}
		return b.String()
	}
	r := left(t, map[string]string{"a": noise(4 << 20), "b": noise(12 << 20), "b.tmp": noise(1 << 20)})
	must(t, os.Link(filepath.Join(r.runDir, "a"), filepath.Join(r.runDir, "a2")))
	r.run.Metadata = codalab.Metadata{"exclude_patterns": []any{"*.tmp"}}
	r.collector.Contents = slowServer{r.server, 1 << 20}
	if said := r.mustCollect(spool.ResultsUpload); said != "16m in 3 entries" {
		t.Errorf("delivered %q", said)
	}
	if len(r.said) < 20 || r.said[0] != "Uploading results: 0 of 16m." {
		t.Fatalf("said %q", r.said)
	}
	before := -1.0
	for _, said := range r.said {
		var done float64
		var unit string
		if _, err := fmt.Sscanf(said, "Uploading results: %f%s of 16m", &done, &unit); err != nil && done != 0 {
			t.Errorf("said %q: %v", said, err)
		}
		done *= map[string]float64{"k": 1 << 10, "m": 1 << 20}[unit]
		if done < before {
			t.Errorf("said %q after %f", said, before)
		}
		before = done
	}
	if last := r.said[len(r.said)-1]; before < 15<<20 || !strings.Contains(last, " at ") {
		t.Errorf("said %q at the end", last)
	}
}

// The sent bytes of these results are a thousandth of them.
func TestProgressOfAnUploadIsInBytesOfFilesHoweverWellTheyCompress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := left(t, map[string]string{"zeros": ""})
		must(t, os.Truncate(filepath.Join(r.runDir, "zeros"), 256<<20))
		r.collector.Contents = slowServer{r.server, 1 << 14}
		r.mustCollect(spool.ResultsUpload)
		halfway := slices.IndexFunc(r.said, func(said string) bool { return strings.HasPrefix(said, "Uploading results: 1") })
		if len(r.said) < 20 || halfway < 0 {
			t.Fatalf("said %q", r.said)
		}
		if said := r.said[halfway]; !strings.Contains(said, "m of 256m at ") || !strings.HasSuffix(said, "s left.") {
			t.Errorf("said %q", said)
		}
		if last := r.said[len(r.said)-1]; !strings.HasPrefix(last, "Uploading results: 256m of 256m at ") || strings.Contains(last, "left") {
			t.Errorf("said %q at the end", last)
		}
	})
}

func TestPipesAndSocketsAmongResultsAreToldAndNotCounted(t *testing.T) {
	t.Parallel()
	r := left(t, map[string]string{"stdout": "out"})
	for _, name := range []string{"p1", "p2", "p3", "p4"} {
		must(t, syscall.Mkfifo(filepath.Join(r.runDir, name), 0o600))
	}
	if said := r.mustCollect(spool.ResultsUpload); said != "3 bytes in 1 entry; 4 pipes or sockets left out: p1, p2, p3, …" {
		t.Errorf("delivered %q", said)
	}
}

// interrupted is a server that breaks the first uploads off.
type interrupted struct {
	*directoryServer

	times int
}

func (s *interrupted) UploadContents(ctx context.Context, uuid string, o client.UploadOptions, body io.Reader) error {
	if s.times--; s.times >= 0 {
		_, err := body.Read(make([]byte, 10))
		return errors.Join(err, &codalab.Error{Message: "connection reset"})
	}
	return s.directoryServer.UploadContents(ctx, uuid, o, body)
}

func TestUploadThatBrokeOffIsBegunAnew(t *testing.T) {
	t.Parallel()
	for _, mode := range []spool.ResultsMode{spool.ResultsUpload, spool.ResultsKeep} {
		r := left(t, map[string]string{"stdout": "out", "model": "m"})
		r.collector.Contents = &interrupted{r.server, 3}
		for range 3 {
			var serverErr *codalab.Error
			if _, err := r.collect(mode); !errors.As(err, &serverErr) || !serverErr.Transient() {
				t.Errorf("error %v, want one that is tried again", err)
			}
		}
		r.mustCollect(mode)
		want := map[spool.ResultsMode][]string{spool.ResultsUpload: {"model", "stdout"}, spool.ResultsKeep: {"kept.txt", "stdout"}}[mode]
		if diff := cmp.Diff(want, r.uploaded()); diff != "" {
			t.Errorf("uploaded (-want +got):\n%s", diff)
		}
	}
}
