package main

import (
	"os"
	"os/user"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/apptainer/runtimes"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/spool"
)

func files(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(found) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}
	return found
}

func TestGoodConfigurationsAreRead(t *testing.T) {
	t.Parallel()
	for _, path := range files(t, "*.good.toml") {
		if _, err := readConfig(path); err != nil {
			t.Error(err)
		}
	}
}

// Each bad file says in its first line what the error has to say.
func TestBadConfigurationsAreRefusedInOneSentence(t *testing.T) {
	t.Parallel()
	for _, path := range files(t, "*.bad.toml") {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(string(data), "\n")
		want, ok := strings.CutPrefix(first, "# want: ")
		if !ok {
			t.Fatalf("%s does not begin with what it wants", path)
		}
		_, err = readConfig(path)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %q, want one line with %q", path, err, want)
		}
		if err != nil && !strings.HasPrefix(err.Error(), path) {
			t.Errorf("%s: error %q does not name the file", path, err)
		}
	}
}

// documented says whether a line of the table of keys names the key of a table.
func documented(lines []string, table, key string) bool {
	return slices.ContainsFunc(lines, func(line string) bool {
		first, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		whole := strings.Contains(first, "`"+strings.TrimPrefix(table+"."+key, ".")+"`")
		return whole || table != "" && strings.Contains(first, "`"+table+".") && strings.Contains(first, "`"+key+"`")
	})
}

func TestOperatorsAreToldOfEachKey(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/reference.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool { return !strings.HasPrefix(line, "| `") })
	for table, of := range map[string]any{
		"": config{}, "slurm": slurmConfig{}, "image": imageConfig{}, `image.registry."HOST"`: registryConfig{}, "link": linkConfig{},
		"cache": cacheConfig{}, "staging": stagingConfig{}, "queue.NAME": queueConfig{},
	} {
		for f := range reflect.TypeOf(of).Fields() {
			key, kind := f.Tag.Get("toml"), f.Type.Kind()
			isTable := kind == reflect.Struct || kind == reflect.Map || kind == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct
			if key != "" && !isTable && !documented(lines, table, key) {
				t.Errorf("docs/reference.md does not say what %q of [%s] means", key, table)
			}
		}
	}
}

func TestQueuesHaveTheirDefaults(t *testing.T) {
	t.Parallel()
	c, err := readConfig("testdata/least.good.toml")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]plan.Queue{"cpu": {
		Name: "cpu", Tag: "cpu", TimeGrace: 2 * time.Minute, MemoryOverhead: 64 << 20, RetryBegun: plan.RetryNever, Scratch: "/tmp", Runtime: runtimes.Auto,
		WorkDir: spool.WorkDirShared, Results: spool.ResultsUpload,
	}}
	if diff := cmp.Diff(want, c.queues()); diff != "" {
		t.Errorf("queues (-want +got):\n%s", diff)
	}
}

// Layers of images are large, and gone in a minute.
func TestLayersAreNotPutIntoTheHome(t *testing.T) {
	t.Parallel()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{me.HomeDir, filepath.Join(me.HomeDir, "tmp")} {
		if err := checkTempDir(dir); err == nil || !strings.Contains(err.Error(), "home directory") {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if err := checkTempDir("/scratch/ann"); err != nil {
		t.Error(err)
	}
}

func TestWorkerOfAnotherArchitectureIsRefused(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	layout := spool.Layout(t.TempDir())
	if _, err := installWorker(self, "s390x", layout); err == nil || !strings.Contains(err.Error(), "the queue's nodes are s390x") {
		t.Errorf("error %v", err)
	}
	path, err := installWorker(self, architecture("").or(), layout)
	if err != nil || filepath.Base(path) != spool.WorkerName {
		t.Errorf("%s, %v", path, err)
	}
}

// A queue of other nodes runs another worker, and no other queue does.
func TestQueueRunsTheWorkerOfItsNodes(t *testing.T) {
	t.Parallel()
	c := config{Queue: map[string]*queueConfig{"here": {}, "there": {Architecture: "s390x"}}}
	queues := programs{workers: map[architecture]string{architecture("").or(): "/bin/own", "s390x": "/bin/s390x"}}.queues(c)
	if queues["here"].Worker != "" || queues["there"].Worker != "/bin/s390x" || queues["there"].Architecture != "s390x" {
		t.Errorf("%+v", queues)
	}
}

func TestPasswordFileOfOthersIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ask := credentials(config{User: "ann", PasswordFile: path})
	if user, password, err := ask(t.Context()); err != nil || user != "ann" || password != "secret" {
		t.Errorf("credentials = %q, %q, %v", user, password, err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ask(t.Context()); err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a readable password file: %v", err)
	}
}

func TestSharedDiskThatIsNotMountedIsNotTakenForAnEmptyOne(t *testing.T) {
	t.Parallel()
	layout := spool.Layout(t.TempDir())
	if err := prepareShared(layout, 3); err == nil || !strings.Contains(err.Error(), "is its disk mounted?") {
		t.Errorf("an empty directory for a ledger with bundles: %v", err)
	}
	if entries, err := os.ReadDir(string(layout)); err != nil || len(entries) > 0 {
		t.Errorf("made %v, %v", entries, err)
	}
	for _, bundles := range []int{0, 3} {
		if err := prepareShared(layout, bundles); err != nil {
			t.Errorf("with %d bundles: %v", bundles, err)
		}
	}
	if err := os.Remove(layout.KeptDirs()); err != nil { // as an earlier version leaves it
		t.Fatal(err)
	}
	if err := prepareShared(layout, 3); err != nil {
		t.Errorf("without a directory of kept results: %v", err)
	}
}
