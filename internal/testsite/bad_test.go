package testsite_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// A bundle that cannot run has a failure message of one sentence.
func TestBadRequestsEndInOneSentence(t *testing.T) {
	t.Parallel()
	s := site(t)
	for _, test := range []struct {
		name, queue string
		args        []string
		want        string
	}{
		{"unknown image", "cpu", []string{"--request-docker-image", hostOf(s.Image) + "/nosuch:latest"}, `nosuch:latest".*not found`},
		{"unreachable registry", "cpu", []string{"--request-docker-image", away + "/x:latest"}, away + `/x:latest".*connection refused`},
		{"registry of the site's own network", "cpu", []string{"--request-docker-image", "127.0.0.1:2/x:latest"}, `127.0.0.1:2/x:latest".*not a public address`},
		{"not an image's name", "cpu", []string{"--request-docker-image", "UPPER case"}, `UPPER case`},
		{"more memory than any node", "cpu", []string{"--request-memory", "300g"}, `Slurm refused the job: .*300g.* the nearest request that fits one is --request-cpus 1 --request-memory 249g\.$`},
		{"more memory than all nodes", "cpu", []string{"--request-memory", "900g"}, `Slurm refused the job: .*900g.* --request-memory 249g\.$`},
		{"more GPUs than any node", "gpu", []string{"--request-gpus", "6"}, `Slurm refused the job: .*6 GPUs.* --request-cpus 1 --request-gpus 4 `},
		{"more CPUs than any node", "cpu", []string{"--request-cpus", "100"}, `Slurm refused the job: .*100 CPUs.* --request-cpus 64 `},
		{"more CPUs than all nodes", "cpu", []string{"--request-cpus", "5000"}, `Slurm refused the job: .*5000 CPUs.* --request-cpus 64 `},
		{"more time than the queue has", "short", []string{"--request-time", "1h"}, `at most 10m0s.*1h0m`},
		{"time limit", "short", []string{"--request-time", "1s"}, `Time limit exceeded`},
		{"memory limit", "cpu", []string{"--request-memory", "50m"}, `Memory limit 50m exceeded`},
		{"exit status", "cpu", nil, `Exit code 7`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			command := "exit 7"
			switch test.name {
			case "time limit":
				command = "sleep 100"
			case "memory limit":
				command = "head -c 500m /dev/zero | tail"
			}
			bundle := create(t, s, test.queue, command, test.args...)
			if state := ended(t, s, bundle); state != "failed" {
				t.Fatalf("state %s, want failed", state)
			}
			got := field(t, s, bundle, "failure_message")
			if !regexp.MustCompile(test.want).MatchString(got) || strings.Contains(got, "\n") {
				t.Errorf("failure_message %q, want one line that matches %s", got, test.want)
			}
		})
	}
}

// create is run for a program that does not ask beforehand whether the queue can run it, as cl does. The arguments are those
// of cl: --request-KEY and its value.
func create(t *testing.T, s *testsite.Site, queue, command string, args ...string) string {
	t.Helper()
	requests := codalab.Metadata{}
	for i := 0; i < len(args); i += 2 {
		key := strings.ReplaceAll(strings.TrimPrefix(args[i], "--"), "-", "_")
		requests[key] = args[i+1]
		if n, err := strconv.Atoi(args[i+1]); err == nil {
			requests[key] = n
		}
	}
	bundle, err := s.Create(t.Context(), queue, command, requests)
	if err != nil {
		t.Fatal(err)
	}
	return bundle
}

func hostOf(image string) string { return image[:strings.IndexByte(image, '/')] }

func TestQueueThatNobodyServesIsNamed(t *testing.T) {
	t.Parallel()
	s := site(t)
	bundle := run(t, s, "nosuch", "true")
	until(t, s, bundle, "staged_status", `nosuch.*cpu`)
	cl(t, s, "kill", bundle)
	if state := ended(t, s, bundle); state != "killed" {
		t.Errorf("state %s, want killed", state)
	}
}

// TestI10ImpossibleRequestsHoldNobodyUp: requests of one user that no node can take, each with the same
// words of Slurm's, hold no queue up.
func TestI10ImpossibleRequestsHoldNobodyUp(t *testing.T) {
	t.Parallel()
	s := site(t)
	var bundles []string
	for _, memory := range []string{"400g", "300g", "900g", "401g", "301g"} {
		bundles = append(bundles, create(t, s, "cpu", "true", "--request-memory", memory))
	}
	for _, bundle := range bundles {
		if state := ended(t, s, bundle); state != "failed" {
			t.Errorf("state %s, want failed", state)
		}
	}
	if bundle := run(t, s, "cpu", "true"); ended(t, s, bundle) != "ready" {
		t.Errorf("a possible request failed: %s", field(t, s, bundle, "failure_message"))
	}
	if said := status(t, s); strings.Contains(said, "takes no job") {
		t.Error(said)
	}
}

func TestMissingDependencyIsNamed(t *testing.T) {
	t.Parallel()
	s := site(t)
	parent := run(t, s, "short", "exit 1")
	child := run(t, s, "short", "true", "in:"+parent)
	if state := ended(t, s, child); state != "failed" {
		t.Fatalf("state %s, want failed", state)
	}
	if got := field(t, s, child, "failure_message"); !strings.Contains(got, parent) {
		t.Errorf("failure_message %q does not name the parent", got)
	}
	input := cl(t, s, "upload", "-c", "text")
	child = run(t, s, "short", "true", "in:"+input+"/no/such/file")
	if state := ended(t, s, child); state != "failed" {
		t.Fatalf("state %s, want failed", state)
	}
	if got := field(t, s, child, "failure_message"); !strings.Contains(got, "no/such/file") {
		t.Errorf("failure_message %q does not name the path", got)
	}
}

func TestFullDiskIsOneSentenceAndLeavesNothing(t *testing.T) {
	t.Parallel()
	need(t)
	worker, err := os.Stat(filepath.Join(testsite.Base, "bin/cl-worker")) // the bridge copies it to the shared disk
	if err != nil {
		t.Fatal(err)
	}
	s := cold(t, testsite.Options{SharedBytes: worker.Size() + 4<<20, Config: "low_water = \"0\"\nstage_patience = \"1s\"\noutage_patience = \"1s\""})
	bundle := run(t, s, "cpu", "true")
	until(t, s, bundle, "run_status", "Trying again at .*: no space left on device\\.$") // the disk may get room
	cl(t, s, "kill", bundle)
	if state := ended(t, s, bundle); state != "killed" {
		t.Errorf("state %s, want killed", state)
	}
	err = filepath.WalkDir(filepath.Join(s.Shared, "cache"), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Base(filepath.Dir(path)) != "pins" { // the next trim removes pins
			t.Errorf("left behind: %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestDiskBelowItsLowWaterTakesNoBundle(t *testing.T) {
	t.Parallel()
	s := own(t, testsite.Options{Config: "low_water = \"900000t\""})
	bundle := run(t, s, "cpu", "true")
	until(t, s, bundle, "staged_status", "^Queue cpu takes no new bundles now: the site's disk has .* free, below its low water of .*\\.$")
	if out := status(t, s); !strings.Contains(out, "! No bundle is claimed, and no inputs are brought in: the site's disk has ") {
		t.Errorf("status:\n%s", out)
	}
	if out := bridge(t, s, "sweep", "-n"); !strings.HasSuffix(out, "would be removed; nothing was") {
		t.Errorf("sweep:\n%s", out)
	}
}

func TestBridgeThatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	s := site(t)
	text, err := os.ReadFile(s.BridgeConfig())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	wrong := filepath.Join(dir, "password")
	if err := os.WriteFile(wrong, []byte("wrong\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	shared := filepath.Join(dir, "shared")
	if err := os.Mkdir(shared, 0o700); err != nil {
		t.Fatal(err)
	}
	replace := func(key, value string) string {
		return regexp.MustCompile(`(?m)^`+key+` = .*$`).ReplaceAllString(string(text), key+` = "`+value+`"`)
	}
	const ledger = "a ledger of its own"
	base := "trust = [\"researcher\"]\n" + replace("ledger", ledger) // root runs these bridges
	for name, test := range map[string]struct {
		config, want string
		code         int
	}{
		"wrong password":       {strings.ReplaceAll(strings.ReplaceAll(base, s.Shared, shared), filepath.Join(s.Dir, "password"), wrong), "wrong user name or password", 4},
		"unknown key":          {"colour = \"red\"\n" + base, "line 1: unknown key colour", 2},
		"another's ledger":     {"trust = [\"researcher\"]\n" + string(text), "belongs to another user", 1},
		"shared in use":        {base, "is held by bridge", 1},
		"no shared":            {strings.ReplaceAll(base, s.Shared, "/proc/nosuch"), "shared directory", 1},
		"no file of that name": {"", "no such file", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "bridge.toml")
			if test.config != "" {
				config := strings.Replace(test.config, ledger, filepath.Join(filepath.Dir(path), "ledger.db"), 1)
				if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			code, words := fails(t, program, "run", "--config", path)
			last := words[strings.LastIndexByte(words, '\n')+1:]
			if code != test.code || !strings.Contains(last, test.want) {
				t.Errorf("exit %d, %q; want %d and %q", code, last, test.code, test.want)
			}
		})
	}
}

// The site's bridge runs at the same time. doctor's jobs run on the site's nodes, whose imitated GPUs have no driver.
func TestDoctorFindsNothingFailedOnASiteThatWorks(t *testing.T) {
	t.Parallel()
	s := site(t)
	said, err := s.Run(t.Context(), program, "doctor", "--config", s.BridgeConfig())
	failed, _ := errors.AsType[*command.Error](err)
	ofGPUs := regexp.MustCompile(`(?m)^(failed|warning) +node\.n[34]\.gpu-.*\n`)
	if rest := ofGPUs.ReplaceAllString(said, ""); failed == nil || failed.ExitCode != 1 || rest == said || regexp.MustCompile(`(?m)^failed `).MatchString(rest) {
		t.Errorf("%v:\n%s", err, said)
	}
	for _, want := range []string{
		"ok +login: ", "ok +ledger: .*: a bridge works on it", `ok +queue\.cpu\.job: job \d+ ran on n[1-4]: `, "ok +shared: files made here appear on n[1-4] within ", `ok +queue\.gpu\.runtime: n[34] runs containers by builtin`,
		`ok +node\.n[34]\.container: one of an empty image was mounted, and ran, in `, `ok +node\.n[34]\.gpu-allocation: SLURM_JOB_GPUS=\d, CUDA_VISIBLE_DEVICES=0: the job may open these and no others`,
		`ok +node\.n[34]\.locks-between-hosts: `, `ok +slurm\.clock: `,
	} {
		if !regexp.MustCompile(`(?m)^` + want).MatchString(said) {
			t.Errorf("no line %q in\n%s", want, said)
		}
	}
}

// The worker's script imitates a node that lacks a feature that containers need.
func TestNodeThatCannotRunContainersIsOneSentence(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ take, want string }{
		"no way to an image": {"mount --bind /dev/null /dev/fuse; mount --bind /dev/null /usr/bin/unsquashfs", `the image cannot be unpacked instead: this node lacks the program unsquashfs`},
		"no user namespaces": {"echo 0 >/proc/sys/user/max_user_namespaces", `does not let ordinary users make user namespaces`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			need(t)
			worker := filepath.Join(testenv.SharedDir(t), "cl-worker")
			script := "#!/bin/sh\nexec unshare -rm sh -ec '" + test.take + "; exec " + testsite.Base + "/bin/cl-worker \"$@\"' worker \"$@\"\n"
			if err := os.WriteFile(worker, []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
			s := own(t, testsite.Options{Config: `worker = "` + worker + `"`})
			bundle := run(t, s, "cpu", "true")
			// It is no fault of the bundle, which waits for another node.
			until(t, s, bundle, "run_status", "^Trying again at [^\n]*"+regexp.QuoteMeta(test.want)+"[^\n]*$")
		})
	}
}
