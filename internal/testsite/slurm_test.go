package testsite_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/slurmcluster"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// often configures a bridge that observes Slurm every second, with the commands of a
// directory.
func often(bin string) string {
	config := "[slurm]\nobserve_every = \"1s\"\n"
	if bin != "" {
		config += fmt.Sprintf("bin = %q\n", bin)
	}
	return config
}

// must runs a program as the researcher and returns its output.
func must(t *testing.T, s *testsite.Site, args ...string) string {
	t.Helper()
	out, err := s.Run(t.Context(), args...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// admin runs one of Slurm's commands as root.
func admin(t *testing.T, args ...string) {
	t.Helper()
	if err := tryAdmin(t, args...); err != nil {
		t.Fatal(err)
	}
}

func tryAdmin(t *testing.T, args ...string) error {
	t.Helper()
	return asRoot(args).Run(context.WithoutCancel(t.Context())) // cleanups too
}

// asRoot is a command that runs as root, as a client of the cluster.
func asRoot(args []string) command.Command {
	slurm := slurmcluster.Chosen()
	return command.Command{Args: append([]string{slurm.Program(args[0])}, args[1:]...), Env: slurm.Env()}
}

// bridge runs one of the bridge's commands.
func bridge(t *testing.T, s *testsite.Site, args ...string) string {
	t.Helper()
	return must(t, s, append(append([]string{program}, args...), "--config", s.BridgeConfig())...)
}

// status runs cl-bridge status, whose exit code is another than 0 while something holds bundles up.
func status(t *testing.T, s *testsite.Site) string {
	t.Helper()
	out, err := s.Run(t.Context(), program, "status", "--config", s.BridgeConfig())
	if failed, ok := errors.AsType[*command.Error](err); ok && failed.Stderr == "" && failed.ExitCode != 2 {
		return out
	}
	testenv.Must(t, err)
	return out
}

const program = testsite.Base + "/bin/cl-bridge"

// explanation is the output of cl-bridge explain.
type explanation struct {
	Phase   string       `json:"phase"`
	Reason  string       `json:"reason"`
	Attempt int          `json:"attempt"`
	Job     sbatch.JobID `json:"job"`
	History []entry      `json:"history"`
}

// entry is one decision of a bundle's history.
type entry struct {
	Phase  string       `json:"phase"`
	Reason string       `json:"reason"`
	Job    sbatch.JobID `json:"job"`
}

// explained runs cl-bridge explain; known is false if the bridge does not know the
// bundle yet.
func explained(t *testing.T, s *testsite.Site, bundle string) (e explanation, known bool) {
	t.Helper()
	out, err := s.Run(t.Context(), program, "explain", "--config", s.BridgeConfig(), "--json", bundle)
	if err != nil && strings.Contains(err.Error(), "no bundle "+bundle) {
		return e, false
	}
	if err := errors.Join(err, json.Unmarshal([]byte(out), &e)); err != nil {
		t.Fatal(err)
	}
	return e, true
}

// explain runs cl-bridge explain for a bundle that the bridge knows.
func explain(t *testing.T, s *testsite.Site, bundle string) explanation {
	t.Helper()
	e, known := explained(t, s, bundle)
	if !known {
		t.Fatalf("the bridge does not know bundle %s", bundle)
	}
	return e
}

// begun waits until a bundle's attempt has begun, and returns its job.
func begun(t *testing.T, s *testsite.Site, bundle string) (job string) {
	t.Helper()
	var e explanation
	testenv.Await(t, "bundle "+bundle+" runs", func() bool {
		var known bool
		e, known = explained(t, s, bundle)
		return known && e.Phase == "running"
	})
	return fmt.Sprint(e.Job)
}

// begins returns the tokens of the workers that began attempts of a bundle.
func begins(t *testing.T, s *testsite.Site, bundle string) []string {
	t.Helper()
	records, err := filepath.Glob(filepath.Join(s.Shared, "spool", bundle, "*", "started"))
	if err != nil {
		t.Fatal(err)
	}
	var tokens []string
	for _, path := range records {
		data, err := os.ReadFile(path)
		var started struct {
			Token  string `json:"token"`
			Closed bool   `json:"closed"`
		}
		if err := errors.Join(err, json.Unmarshal(data, &started)); err != nil {
			t.Fatal(err)
		}
		if !started.Closed {
			tokens = append(tokens, started.Token)
		}
	}
	return tokens
}

// ranOnce checks that a bundle is ready, began once, and printed "once" once.
func ranOnce(t *testing.T, s *testsite.Site, bundle string) {
	t.Helper()
	ready(t, s, bundle)
	if n := len(begins(t, s, bundle)); n != 1 {
		t.Errorf("bundle %s began %d times", bundle, n)
	}
	if got := cl(t, s, "cat", bundle+"/stdout"); got != "once" {
		t.Errorf("bundle %s printed %q, want once", bundle, got)
	}
}

// facts returns the fields of a job, as scontrol shows them.
func facts(t *testing.T, s *testsite.Site, job string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for f := range strings.FieldsSeq(must(t, s, "scontrol", "show", "job", job)) {
		key, value, _ := strings.Cut(f, "=")
		found[key] = value
	}
	// Only the comment may have spaces.
	_, comment, _ := strings.Cut(must(t, s, "scontrol", "show", "job", job), " Comment=")
	comment, _, _ = strings.Cut(comment, "\n")
	found["Comment"] = strings.TrimSpace(comment)
	return found
}

// byHand submits a job with a name and a comment of the caller's, as a researcher may.
func byHand(t *testing.T, s *testsite.Site, name, comment string, script ...string) (job string) {
	t.Helper()
	return must(t, s, append([]string{
		"sbatch", "--parsable", "--export=NONE", "--partition=cpu", "--account=lab", "--time=5",
		"--chdir=" + s.Shared + "/spool", // Site.Close finds its jobs by the directory
		"--output=" + s.Shared + "/%j.out", "--job-name=" + name, "--comment=" + comment,
	}, script...)...)
}

// wrapped returns a directory of Slurm's commands, some of them replaced by scripts.
// A script finds the real ones in $BIN, and the directory in $HERE.
func wrapped(t *testing.T, scripts map[string]string) string {
	t.Helper()
	cluster, dir := testenv.Slurm(t), testenv.SharedDir(t)
	for _, name := range []string{"sbatch", "squeue", "sacct", "scancel", "scontrol", "sinfo"} {
		path := filepath.Join(dir, name)
		script, ok := scripts[name]
		err := error(nil)
		if ok {
			err = os.WriteFile(path, []byte("#!/bin/sh\nBIN="+cluster.Bin+" HERE="+dir+"\n"+script), 0o755)
		} else {
			err = os.Symlink(filepath.Join(cluster.Bin, name), path)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// lines returns the lines of a file; none if it does not exist.
func lines(path string) []string {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}

// owner returns the user of a file.
func owner(info os.FileInfo) (uid, gid int) {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid), int(s.Gid)
	}
	return 0, 0
}

// one returns the one path that matches.
func one(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v, %v", pattern, found, err)
	}
	return found[0]
}
