package testsite_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

func TestBundleGoesFromRunToItsFiles(t *testing.T) {
	t.Parallel()
	s := site(t)
	data := filepath.Join(s.Dir, "home", t.Name())
	if err := errors.Join(os.Mkdir(data, 0o755), os.WriteFile(filepath.Join(data, "n"), []byte("3\n1\n2\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	input := cl(t, s, "upload", data)
	bundle := run(t, s, "cpu", "pwd; echo $HOME; sort in/n; sort in/n > sorted; echo oops >&2; touch in/x", "in:"+input, "n:"+input+"/n")
	if state := ended(t, s, bundle); state != "failed" { // in/x: inputs are read-only
		t.Fatalf("state %s, want failed: the input was writable", state)
	}
	want := "/" + bundle + "\n/" + bundle + "\n1\n2\n3"
	if got := cl(t, s, "cat", bundle+"/stdout"); got != want {
		t.Errorf("stdout %q, want %q", got, want)
	}
	if got := cl(t, s, "cat", bundle+"/stderr"); !strings.HasPrefix(got, "oops") || !strings.Contains(got, "Read-only") {
		t.Errorf("stderr %q", got)
	}
	if got := cl(t, s, "cat", bundle+"/sorted"); got != "1\n2\n3" {
		t.Errorf("sorted %q", got)
	}
	if got := field(t, s, bundle, "remote"); got != "n1" && got != "n2" { // the hosts have other names
		t.Errorf("remote %q, want the compute node as Slurm calls it", got)
	}
	if got := field(t, s, bundle, "docker_image"); !strings.Contains(got, "@sha256:") {
		t.Errorf("docker_image %q, want a name with the digest", got)
	}
	// Its usage stays after its end.
	for _, used := range []string{"cpu_usage", "memory_usage", "memory_max", "time"} {
		if got := field(t, s, bundle, used); strings.Trim(got, "0.") == "" || got == "None" {
			t.Errorf("%s %q", used, got)
		}
	}
	// So does what it ran on, and with which data.
	crate := cl(t, s, "info", "--provenance", bundle)
	for _, want := range []string{
		`"name": "cl-slurm",\s+"softwareVersion": "[^"]+"`, `"name": "Slurm",\s+"softwareVersion": "[0-9.]+"`, `"@id": "#site/\w+"`,
		`"tree-sha256:[0-9a-f]{64}"`, fmt.Sprintf(`"sha256": "%x"`, sha256.Sum256([]byte("3\n1\n2\n"))),
	} {
		if !regexp.MustCompile(want).MatchString(crate) {
			t.Errorf("the provenance lacks %s:\n%s", want, crate)
		}
	}
	target := filepath.Join(s.Dir, "home", "got")
	cl(t, s, "download", bundle, "-o", target)
	entries, err := os.ReadDir(target)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); got != "sorted stderr stdout" {
		t.Errorf("downloaded %q, want the results without the input", got)
	}
}

func TestBundleThatNamesNoQueueGoesToTheDefaultOne(t *testing.T) {
	t.Parallel()
	s := site(t)
	bundle := cl(t, s, "run", "mkdir -p a/b; echo kept > a/b/c; chmod 0 a; truncate -s 3T hole; rm hole")
	ready(t, s, bundle)
	// Files that the command closed to its owner are results too.
	if got := cl(t, s, "cat", bundle+"/a/b/c"); got != "kept" {
		t.Errorf("a/b/c %q", got)
	}
}

func TestChainOfRunsWaitsForItsParents(t *testing.T) {
	t.Parallel()
	s := site(t)
	first := run(t, s, "short", "sleep 1; echo one > a; mkdir d; echo two > d/b")
	second := run(t, s, "cpu", "cat x y/b z/a", "x:"+first+"/a", "y:"+first+"/d", "z:"+first)
	ready(t, s, second)
	if got := cl(t, s, "cat", second+"/stdout"); got != "one\ntwo\none" {
		t.Errorf("stdout %q", got)
	}
}

// As with CodaLab's own worker: cl run /foo/bar:x.
func TestKeyThatBeginsWithASlashIsAPathOfTheContainer(t *testing.T) {
	t.Parallel()
	s := site(t)
	parent := run(t, s, "cpu", "echo theirs > a; mkdir d; echo inner > d/b")
	child := run(t, s, "cpu", "cat /foo/bar /opt/d/b; mkdir foo; echo mine > foo/bar; echo x 2>&- > /opt/d/new", "/foo/bar:"+parent+"/a", "/opt/d:"+parent+"/d")
	if state := ended(t, s, child); state != "failed" {
		t.Errorf("state %s, want failed: the input was writable", state)
	}
	if got := cl(t, s, "cat", child+"/stdout"); got != "theirs\ninner" {
		t.Errorf("stdout %q", got)
	}
	if got := cl(t, s, "cat", child+"/foo/bar"); got != "mine" {
		t.Errorf("its own foo/bar holds %q", got)
	}
}

func TestRunSeesTheGPUsOfItsAllocationOnly(t *testing.T) {
	t.Parallel()
	s := site(t)
	command := "ls /dev | grep -c '^nvidia[0-9]'; echo $CUDA_VISIBLE_DEVICES; env | grep -c SLURM"
	var bundles []string
	for range 2 { // side by side on the two nodes' GPUs
		bundles = append(bundles, run(t, s, "gpu", command+"; sleep 2; exit 0", "--request-gpus", "3"))
	}
	none := run(t, s, "gpu", command+"; exit 0")
	for _, b := range bundles {
		ready(t, s, b)
		if got := cl(t, s, "cat", b+"/stdout"); got != "3\n0,1,2\n0" {
			t.Errorf("a run with three GPUs saw %q", got)
		}
	}
	ready(t, s, none)
	if got := strings.Fields(cl(t, s, "cat", none+"/stdout")); got[0] != "0" {
		t.Errorf("a run without GPUs saw %q", got)
	}
}

func TestRunningBundlesFilesAreReadLive(t *testing.T) {
	t.Parallel()
	s := site(t)
	bundle := run(t, s, "cpu", "mkdir d; echo x > d/f; echo begun; sleep 3000")
	until(t, s, bundle, "state", "running")
	untilPrinted(t, s, bundle, "begun")
	if got := cl(t, s, "cat", bundle+"/d/f"); got != "x" {
		t.Errorf("d/f %q", got)
	}
	if got := cl(t, s, "cat", bundle); !strings.Contains(got, "stdout") {
		t.Errorf("listing %q", got)
	}
	if out, err := s.CL(t.Context(), "cat", bundle+"/none"); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("a missing file: %q, %v", out, err)
	}
	cl(t, s, "kill", bundle)
	if state := ended(t, s, bundle); state != "killed" {
		t.Errorf("state %s, want killed", state)
	}
	if got := cl(t, s, "cat", bundle+"/stdout"); got != "begun" {
		t.Errorf("stdout of the killed bundle %q", got)
	}
}

func TestKilledCommandSavesWhenToldToEnd(t *testing.T) {
	t.Parallel()
	s := site(t)
	bundle := run(t, s, "cpu", "trap 'echo saved > state; exit 0' TERM; echo up; while :; do sleep 0.1; done")
	until(t, s, bundle, "state", "running")
	untilPrinted(t, s, bundle, "up")
	cl(t, s, "kill", bundle)
	if state := ended(t, s, bundle); state != "killed" {
		t.Errorf("state %s, want killed", state)
	}
	if got := cl(t, s, "cat", bundle+"/state"); got != "saved" {
		t.Errorf("state file %q, want what the command's trap wrote", got)
	}
}

func TestKillOfAWaitingJobEndsItAtOnce(t *testing.T) {
	t.Parallel()
	need(t)
	held := `case "$*" in *--version*) exec $BIN/sbatch "$@";; esac; exec $BIN/sbatch --hold "$@"` + "\n"
	s := own(t, testsite.Options{Config: often(wrapped(t, map[string]string{"sbatch": held}))})
	bundle := run(t, s, "cpu", "true")
	until(t, s, bundle, "run_status", "JobHeldUser")
	cl(t, s, "kill", bundle)
	if state := ended(t, s, bundle); state != "killed" {
		t.Errorf("state %s, want killed", state)
	}
	if jobs := must(t, s, "squeue", "--me", "--noheader", "--format=%k"); strings.Contains(jobs, bundle) {
		t.Errorf("the job is in the queue still: %q", jobs)
	}
}

func TestAdministratorSeesNamesAndComments(t *testing.T) {
	t.Parallel()
	s := site(t)
	bundle := run(t, s, "short", "exit 4")
	if state := ended(t, s, bundle); state != "failed" {
		t.Fatalf("state %s, want failed", state)
	}
	if got := field(t, s, bundle, "exitcode"); got != "4" {
		t.Errorf("exitcode %q, want 4", got)
	}
	var job []string
	testenv.Await(t, "the accounts show "+bundle, func() bool {
		out := must(t, s, "sacct", "--allocations", "--parsable2", "--noheader", "--format=JobName,Account,WCKey,State,ExitCode,Comment")
		for line := range strings.Lines(out) {
			if strings.Contains(line, "bundle="+bundle+" attempt=1") {
				job = strings.Split(line, "|")
			}
		}
		return job != nil && job[3] != "RUNNING"
	}, &job)
	name := field(t, s, bundle, "name")
	if !strings.HasPrefix(job[0], "cl-researcher-"+name+"-"+bundle[2:14]+".1-") || !strings.HasSuffix(strings.TrimSpace(job[5]), " login=researcher name="+name) || !slices.Equal(job[1:5], []string{"lab", "proj1", "FAILED", "4:0"}) {
		t.Errorf("sacct prints %q", job)
	}
}

func TestResultsOfABridgeThatWasAwayAreDelivered(t *testing.T) {
	t.Parallel()
	s := own(t, testsite.Options{})
	bundle := run(t, s, "cpu", "until test -e finish; do sleep 0.1; done; echo late")
	until(t, s, bundle, "state", "running")
	if err := s.StopBridge(); err != nil {
		t.Fatal(err)
	}
	permit(t, s, bundle)
	testenv.Await(t, "the job has ended", func() bool {
		return !strings.Contains(must(t, s, "squeue", "--me", "--noheader", "--format=%k"), bundle)
	})
	if err := s.StartBridge(t.Context()); err != nil {
		t.Fatal(err)
	}
	ready(t, s, bundle)
	if got := cl(t, s, "cat", bundle+"/stdout"); got != "late" {
		t.Errorf("stdout %q", got)
	}
}

func TestKeptResultsComeFromTheNodeAndAreSeenInPlace(t *testing.T) {
	t.Parallel()
	s := site(t)
	first := run(t, s, "checkpoints", `mkdir ckpt; echo weights > ckpt/1; ln -s ckpt/1 last; echo said; echo "$TMPDIR"; touch "$TMPDIR/x"`)
	ready(t, s, first)
	kept := one(t, filepath.Join(s.Shared, "kept", first+"*"))
	if got, err := os.ReadFile(filepath.Join(kept, "ckpt", "1")); err != nil || string(got) != "weights\n" {
		t.Errorf("kept %q, %v", got, err)
	}
	listing := cl(t, s, "cat", first+"/kept.txt")
	for _, want := range []string{kept, "ckpt/1", "last -> ckpt/1"} {
		if !strings.Contains(listing, want) {
			t.Errorf("no %q in the listing:\n%s", want, listing)
		}
	}
	if got := cl(t, s, "cat", first+"/stdout"); got != "said\n/"+first+"_tmp" {
		t.Errorf("stdout %q", got)
	}
	second := run(t, s, "cpu", "cat all/ckpt/1 one; ls -A all", "all:"+first, "one:"+first+"/last")
	ready(t, s, second)
	if got := cl(t, s, "cat", second+"/stdout"); got != "weights\nweights\nckpt\nlast\nstderr\nstdout" {
		t.Errorf("a run that depends on it saw %q", got)
	}
	if out := bridge(t, s, "kept", "ls"); !regexp.MustCompile(first + `\S* +ready`).MatchString(out) {
		t.Errorf("kept ls:\n%s", out)
	}
}
