package testsite_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// sparse is the size of a file without contents whose upload takes minutes.
const sparse = "20G"

// A run leaves a sparse file, whose upload would take long and fill the server's disk. A kill gives the upload up: the
// bundle ends as killed with its output, the server's part of the upload goes, and the bundle can be removed. The bridge
// and a stand-alone worker do the same.
func TestKillEndsTheUploadOfASparseFile(t *testing.T) {
	t.Parallel()
	s := own(t, testsite.Options{})
	server := filepath.Join(s.Dir, "server")
	must(t, s, filepath.Join(testsite.Base, "bin", "cl-server"), "user", "quota", "--data", server, testsite.User, "--disk-quota", "1t")
	dir := workDir(t, s)
	startProgram(t, s.Program("cl-worker", "--server", s.Server, "--password-file", s.PasswordFile(), "--tag", "alone", "--tag-exclusive",
		"--id", "alone", "--work-dir", filepath.Join(dir, "scratch"), "--fetch-private", "127.0.0.1"), dir)
	for queue, left := range map[string]string{
		"cpu":   `All files stay in ` + regexp.QuoteMeta(s.Shared) + `/runs/\S+ on the cluster's disk until [-0-9]+ [:0-9]+ \S+\.`,
		"alone": `The worker does not keep the other files\.`,
	} {
		bundle := run(t, s, queue, "echo trained; truncate -s "+sparse+" model")
		status := until(t, s, bundle, "run_status", "Uploading results: ")
		began := time.Now()
		cl(t, s, "kill", bundle)
		until(t, s, bundle, "state", "killed")
		took := time.Since(began)
		message := field(t, s, bundle, "failure_message")
		t.Logf("%s: at %q; killed in %s: %s", queue, status, took.Round(time.Millisecond), message)
		want := `^Kill requested\. The upload of the results \(20\.0g in 3 entries\) was given up\. ` +
			`The end of stdout and stderr is at the server\. ` + left + `$`
		if !regexp.MustCompile(want).MatchString(message) {
			t.Errorf("failure message %q", message)
		}
		if got := cl(t, s, "cat", bundle+"/stdout"); got != "trained" {
			t.Errorf("stdout %q", got)
		}
		var names []string
		testenv.Await(t, "the part of the upload is gone", func() bool {
			names = nil
			entries, err := os.ReadDir(filepath.Join(server, "bundles"))
			for _, e := range entries {
				names = append(names, e.Name())
			}
			return err == nil && len(names) == 1
		}, &names)
		if history := cl(t, s, "info", "--history", bundle); !strings.Contains(history, "killed") {
			t.Errorf("history %s", history)
		}
		cl(t, s, "rm", "--force", bundle)
	}
}
