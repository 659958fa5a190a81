package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

// All jobs of the account can read a job's environment, and Slurm's database may keep it.
func TestWorkersGetTheProxiesWithoutPasswords(t *testing.T) {
	t.Parallel()
	env := map[string]string{
		"http_proxy": "http://proxy:3128", "https_proxy": "http://ann:secret@proxy:3128", "NO_PROXY": "localhost,.site",
		"CODALAB_PASSWORD": "secret", "PATH": "/home/ann/bin",
	}
	var log bytes.Buffer
	s := &slurmBatch{manager: &manager{Process: program.Process{Getenv: func(name string) string { return env[name] }, Stderr: &log}}}
	want := []string{"NO_PROXY=localhost,.site", "http_proxy=http://proxy:3128"}
	if diff := cmp.Diff(want, s.proxies(t.Context())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := log.String(); !strings.Contains(got, "https_proxy") || strings.Contains(got, "secret") {
		t.Errorf("log %q, want the variable without the password", got)
	}
}
