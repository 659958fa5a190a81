package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/cl-slurm/cl-slurm/cmd/internal/onnode"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

var update = flag.Bool("update", false, "write the golden files")

// call runs the program with arguments, and without an environment.
func call(t *testing.T, args ...string) (stdout string, code int, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	err = run(t.Context(), program.Process{
		Args: args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Now: time.Now,
		Getenv: func(string) string { return "" },
	})
	return out.String(), program.Code(t.Context(), err), err
}

// TestHelpIsAsWritten compares the output of --help with testdata/help.
func TestHelpIsAsWritten(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"", "exec", "probe"} {
		name := strings.TrimSuffix("cl-worker-"+command, "-")
		got, code, err := call(t, append(strings.Fields(command), "--help")...)
		if code != 0 || err != nil {
			t.Errorf("%s: %d, %v", name, code, err)
		}
		file := filepath.Join("testdata", "help", name+".txt")
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (-update writes it): %s", file, diff)
		}
	}
}

func TestEntryPointOfAnImageMayBeNamedAgain(t *testing.T) {
	t.Parallel()
	want, _, err := call(t, "--help")
	must(t, err)
	for _, name := range []string{"cl-worker", "/usr/bin/cl-worker"} {
		if got, code, err := call(t, name, "--help"); err != nil || code != 0 || got != want {
			t.Errorf("%s --help: %d, %v: %s", name, code, err, got)
		}
	}
}

func TestMisuseIsSaidInALine(t *testing.T) {
	t.Parallel()
	const addressed = "--server=http://127.0.0.1:1"
	for want, args := range map[string][]string{
		"want either SPEC or --members FILE":                 {"exec"},
		`unknown command "run" for "cl-worker"`:              {"run"},
		`unexpected argument "exec"`:                         {"--verbose", "exec"},
		"there is no option --sever: did you mean --server?": {"--sever", "x"},
		"--max may be --max-work-dir-size or --max-image-cache-size or --max-image-size or --max-memory or --max-cpus or --max-processes: write more of it": {"--max", "3g"},
		"--server needs a value":                                                                                                                       {"--server"},
		`--idle-seconds needs a whole number, not "soon"`:                                                                                              {"--idle-sec", "soon"},
		"--max-processes 3: want 64 or more, or 0 for no limit":                                                                                        {addressed, "--max-processes", "3"},
		`--tag "a_b": a tag has letters, digits and hyphens only`:                                                                                      {"--tag", "a_b"},
		`--bundle-runtime "podman": want one of auto, docker, apptainer, builtin, slurm, kubernetes`:                                                   {"--bundle-runtime", "podman"},
		"the --kubernetes flags need --bundle-runtime kubernetes":                                                                                      {"--kubernetes-auth-token", "x"},
		"--kubernetes-auth-token, --kubernetes-cert-path and --kubernetes-cert need --kubernetes-cluster-host":                                         {"--bundle-runtime", "kubernetes", "--kubernetes-auth-token", "x"},
		"--bundle-network host: a run's pod never has the network of its node":                                                                         {"--bundle-runtime", "kubernetes", "--bundle-network", "host"},
		"--cpuset and --gpuset name CPUs and GPUs of this host: with --bundle-runtime kubernetes, give --kubernetes-cpus and --kubernetes-gpus":        {"--bundle-runtime", "kubernetes", "--cpuset", "0"},
		"--max-image-size and --max-image-cache-size: with --bundle-runtime kubernetes, the nodes pull and remove images by the cluster's own limits":  {"--bundle-runtime", "kubernetes", "--max-image-size", "1g"},
		"no server: name it with --server http://HOST:PORT, or set CODALAB_SERVER, or choose one with cl work":                                         {},
		"no user name and password: name a file that has them with --password-file, set CODALAB_USERNAME and CODALAB_PASSWORD, or start on a terminal": {addressed},
		"read password file: open /nowhere: no such file or directory":                                                                                 {addressed, "--password", "/nowhere"},
	} {
		if _, code, err := call(t, args...); code != program.ExitUsage || err.Error() != want {
			t.Errorf("%q: %d, %v; want %s", args, code, err, want)
		}
	}
	_, code, err := call(t, "exec", "/nowhere/spec.json")
	if code != onnode.ExitSpec || err.Error() != "unusable specification /nowhere/spec.json: no such record" {
		t.Errorf("%d, %v", code, err)
	}
}

func TestShellsCompleteTheRuntimes(t *testing.T) {
	t.Parallel()
	if got, code, err := call(t, "__complete", "--bundle-runtime", "a"); code != 0 || !strings.HasPrefix(got, "auto\ndocker\n") {
		t.Errorf("%d, %v: %s", code, err, got)
	}
	if got, code, err := call(t, "__complete", "--work-dir", ""); code != 0 || !strings.Contains(got, ":16\n") {
		t.Errorf("%d, %v: %s", code, err, got)
	}
}

// TestManualPageHasEveryOption also reads the rendered page.
func TestManualPageHasEveryOption(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, code, err := call(t, "man", dir); code != 0 {
		t.Fatal(code, err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "cl-worker.1"))
	if err != nil {
		t.Fatal(err)
	}
	if synopsis := ".SH SYNOPSIS\n\\fBcl\\-worker\\fR [COMMAND] [flags]\n"; !strings.Contains(string(page), synopsis) {
		t.Errorf("there is no %s in\n%s", synopsis, page)
	}
	newRoot(program.Process{}).Flags().VisitAll(func(f *pflag.Flag) {
		entry := ".TP\n\\fB\\-\\-" + strings.ReplaceAll(f.Name, "-", "\\-") + "\\fR"
		if strings.Contains(string(page), entry) == f.Hidden {
			t.Errorf("--%s: hidden is %v, and the page is\n%s", f.Name, f.Hidden, page)
		}
	})
}
