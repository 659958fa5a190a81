package testsite_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// weather stands for each of Slurm's commands. Every other call meets a fault, one kind after the other; the calls
// between succeed, so that the bridge does not pause for long. The real commands meet real failures: a slurm.conf of
// their own names a port or a socket where nobody answers.
const weather = `name=${0##*/}
[ "$1" != --version ] || exec $BIN/$name "$@"
echo >>$HERE/calls.$name
n=$(wc -l <$HERE/calls.$name)
fault=$((n / 2 % 9))
[ $((n % 2)) = 0 ] || fault=none
[ $fault = none ] || echo $name.$fault >>$HERE/struck
case $name in sbatch)
	echo "*** Maintenance on Monday, job slots: 42 ***"
	echo "sbatch: lua: partition and time were checked" >&2
	exec $BIN/sbatch "$@";;
esac
case $fault in
none) exec $BIN/$name "$@";;
0) SLURM_CONF=$HERE/controller.conf exec $BIN/$name "$@";; # slurmctld is down, and slurmdbd for sacct
1) SLURM_CONF=$HERE/munge.conf exec $BIN/$name "$@";; # munged is down
2) echo "*** Maintenance on Monday ***"; exec $BIN/$name "$@";;
3) $BIN/$name "$@" | head -c 60;;
4) exit 1;;
5) kill -9 $$;;
6) sleep 2; exec $BIN/$name "$@";;
7) $BIN/$name "$@" | sed 's/RUNNING/DREAMING/g; s/COMPLETED/AWAKENED/g; s/PENDING/HOPING/g';;
8) exit 0;; # without a word
esac
`

// I3: no outage and no answer of Slurm's commands ends a bundle, and none runs twice.
func TestI3WhateverSlurmsCommandsAnswerEachBundleRunsOnce(t *testing.T) {
	t.Parallel()
	need(t)
	scripts := map[string]string{}
	for _, name := range []string{"sbatch", "squeue", "sacct", "scancel", "scontrol"} {
		scripts[name] = weather
	}
	bin := wrapped(t, scripts)
	nobodyAnswers(t, bin)
	s := own(t, testsite.Options{Config: often(bin)})
	long := run(t, s, "cpu", "echo once; sleep 900")
	var bundles []string
	for i := range 6 {
		bundles = append(bundles, run(t, s, "cpu", fmt.Sprintf("sleep %d; echo once", 3*i)))
	}
	for _, bundle := range bundles {
		ranOnce(t, s, bundle)
	}
	testenv.Await(t, "each fault of squeue has struck", func() bool {
		struck := strings.Join(lines(filepath.Join(bin, "struck")), "\n")
		for fault := range 9 {
			if !strings.Contains(struck, fmt.Sprintf("squeue.%d", fault)) {
				return false
			}
		}
		return true
	})
	if state := field(t, s, long, "state"); state != "running" {
		t.Errorf("the long bundle is %s: %s", state, field(t, s, long, "failure_message"))
	}
	cl(t, s, "kill", long)
	if state := ended(t, s, long); state != "killed" {
		t.Errorf("the long bundle is %s: %s", state, field(t, s, long, "failure_message"))
	}
	if n := len(begins(t, s, long)); n != 1 {
		t.Errorf("the long bundle began %d times", n)
	}
}

// nobodyAnswers writes slurm.conf files of which one part does not answer.
func nobodyAnswers(t *testing.T, dir string) {
	t.Helper()
	whole, err := os.ReadFile(testenv.Slurm(t).Conf)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]map[string]string{
		"controller.conf": {"SlurmctldPort": "1", "AccountingStoragePort": "1"},
		"munge.conf":      {"AuthInfo": "socket=/nonexistent"},
	} {
		conf := string(whole)
		for key, value := range change {
			line := regexp.MustCompile(`(?m)^` + key + `=.*$`)
			if !line.MatchString(conf) {
				t.Fatalf("slurm.conf has no %s", key)
			}
			conf = line.ReplaceAllString(conf, key+"="+value)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(conf), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
