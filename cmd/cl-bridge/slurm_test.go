package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/sbatch"
)

// slurmCommands is a directory of shell scripts with the names of Slurm's commands. They
// print package sbatch's recorded outputs of the real commands, for a user with the
// accounts lab and nlp. They implement no rules: tests of the rules run on
// slurmtest.Cluster, or on the real Slurm.
type slurmCommands string

// The file skew has the seconds by which the controller's clock is ahead of this host's; without it they agree.
//
// jobsFile has a line for each job, with the fields of sbatch's squeue: id, state,
// nodes, start, name, reason, submission, time limit, comment. squeue fails when the file is absent.
const jobsFile = "jobs"

func writeSlurmCommands(t *testing.T, dir string) slurmCommands {
	t.Helper()
	for name, script := range map[string]string{
		"squeue": `file=$dir/jobs
for a; do case $a in --format=*) separator=${a#--format=} separator=${separator%%%*} ;; --jobs=*) file=$dir/held${a#*=} ;; esac; done
[ -e "$dir/jobs" ] || { echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1; }
exec sed "s/|/$separator/g" "$file"`,
		// A job runs at once, on this host, if it is not held.
		"sbatch": `id=$$ account=lab
for a; do case $a in
--test-only) exit 0 ;; --hold) held=1 ;; --job-name=*) name=${a#*=} ;; --comment=*) comment=${a#*=} ;;
--partition=*) partition=${a#*=} ;; --account=*) account=${a#*=} ;; --time=*) time=${a#*=} ;;
esac; done
if [ "$held" ]; then
	now=$(($(date +%s) + $(cat "$dir/skew" 2>/dev/null || echo 0)))
	echo "|$now|$partition|$account|normal|$((time / 1440))-$((time / 60 % 24)):$((time % 60)):00|$name|$comment" >"$dir/held$id"
	echo $id
	exit
fi
cat >"$dir/script$id"
echo "|$id|RUNNING|n1|1767225600|$name|None|1767225600|1:00:00|" >>"$dir/jobs"
sh "$dir/script$id" >"$dir/out$id" 2>&1 </dev/null &
echo $id`,
		"scontrol": `cat <<'END'
AccountingStorageType   = accounting_storage/slurmdbd
ClusterName             = test
KillWait                = 30 sec
MinJobAge               = 300 sec
SlurmctldParameters     = (null)
SLURM_VERSION           = 22.05.8
END`,
		"scancel": "",
		"sacct":   "",
		"sacctmgr": `echo 'lab|lab||limited,normal'
echo 'lab|nlp||limited,normal'`,
		"sinfo": `cat <<'END'
cpu|cpu*|up|7-00:00:00|1:00:00|0/2/0/2|UNLIMITED|64|256000|(null)
gpu|gpu|up|2-00:00:00|1:00:00|0/2/0/2|UNLIMITED|64|256000|gpu:a100:4
short|short|up|10:00|1:00|0/2/0/2|UNLIMITED|64|256000|(null)
short|short|up|10:00|1:00|0/2/0/2|UNLIMITED|64|256000|gpu:a100:4
old|old|down|infinite|n/a|0/1/0/1|UNLIMITED|64|256000|(null)
END`,
	} {
		script = "#!/bin/sh\ndir=${0%/*}\n[ \"$1\" != --version ] || { echo slurm-wlm 22.05.8; exit; }\n" + script + "\n"
		testenv.WriteProgram(t, filepath.Join(dir, name), []byte(script))
	}
	s := slurmCommands(dir)
	s.write(t, nil)
	return s
}

func (s slurmCommands) read(t *testing.T) []byte {
	t.Helper()
	lines, err := os.ReadFile(filepath.Join(string(s), jobsFile))
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func (s slurmCommands) write(t *testing.T, lines []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(string(s), jobsFile), lines, 0o600); err != nil {
		t.Fatal(err)
	}
}

// add has squeue show a job, which gets the next id.
func (s slurmCommands) add(t *testing.T, j sbatch.Job) sbatch.JobID {
	t.Helper()
	lines := s.read(t)
	id := sbatch.JobID(bytes.Count(lines, []byte("\n")) + 1)
	s.write(t, fmt.Appendf(lines, "|%d|%s||N/A|%s|None|1767225600|1:00:00|%s\n", id, j.State, j.Name, j.Comment))
	return id
}

// setState has squeue show a job in another state.
func (s slurmCommands) setState(t *testing.T, id sbatch.JobID, from, to sbatch.State) {
	t.Helper()
	s.write(t, bytes.Replace(s.read(t), fmt.Appendf(nil, "|%d|%s|", id, from), fmt.Appendf(nil, "|%d|%s|", id, to), 1))
}

// stop has squeue find no controller.
func (s slurmCommands) stop(t *testing.T) {
	t.Helper()
	if err := os.Remove(filepath.Join(string(s), jobsFile)); err != nil {
		t.Fatal(err)
	}
}
