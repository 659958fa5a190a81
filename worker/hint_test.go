package worker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/spool"
)

// The ends are those of real programs.
func TestCommonFailureSaysWhatToChange(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		code, signal int
		stderr       string
		want         string
	}{
		"no output":   {code: 3},
		"other words": {code: 1, stderr: "usage: train.py DATA\n", want: "Exit code 1. The end of stderr: usage: train.py DATA"},
		"module": {
			code: 1, stderr: "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n    import torch.nn\nModuleNotFoundError: No module named 'torch'\n",
			want: `Exit code 1. The image has no Python module torch: use an image that has it, or install it in the command. The end of stderr: File "train.py", line 3, in <module> | import torch.nn | ModuleNotFoundError: No module named 'torch'`,
		},
		"CUDA": {
			code: 1, stderr: "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 15.77 GiB\n",
			want: "Exit code 1. The memory of the GPU was full: use a smaller batch or model, or a GPU with more memory. The end of stderr: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 15.77 GiB",
		},
		"disk": {
			code: 1, stderr: "cp: error writing '/tmp/x': No space left on device\n",
			want: "Exit code 1. A disk was full: write less, or ask for more with --request-disk. The end of stderr: cp: error writing '/tmp/x': No space left on device",
		},
		"architecture": {
			code: 126, stderr: "/bin/bash: line 1: ./prog: cannot execute binary file: Exec format error\n",
			want: "Exit code 126. A program was made for another kind of processor, or a script does not begin with #!: use an image of the nodes' architecture. The end of stderr: /bin/bash: line 1: ./prog: cannot execute binary file: Exec format error",
		},
		"instruction, in a shell": {
			code: 132, stderr: "/bin/bash: line 1:     7 Illegal instruction     (core dumped) ./prog\n",
			want: "Exit code 132. A program uses instructions that the node's processor lacks: use a build for older processors, or another queue. The end of stderr: /bin/bash: line 1: 7 Illegal instruction (core dumped) ./prog",
		},
		"instruction, by signal": {
			code: 132, signal: 4,
			want: "Exit code 132: illegal instruction (signal 4). A program uses instructions that the node's processor lacks: use a build for older processors, or another queue.",
		},
		"program, in bash":    {code: 127, stderr: "/bin/bash: line 1: nvidia-smi: command not found\n", want: "Exit code 127. The image has no program nvidia-smi: use an image that has it, or install it in the command. The end of stderr: /bin/bash: line 1: nvidia-smi: command not found"},
		"program, in dash":    {code: 127, stderr: "/bin/sh: 1: conda: not found\n", want: "Exit code 127. The image has no program conda: use an image that has it, or install it in the command. The end of stderr: /bin/sh: 1: conda: not found"},
		"program, in busybox": {code: 127, stderr: "sh: conda: not found\n", want: "Exit code 127. The image has no program conda: use an image that has it, or install it in the command. The end of stderr: sh: conda: not found"},
		"a page, not program": {code: 8, stderr: "ERROR 404: not found\n", want: "Exit code 8. The end of stderr: ERROR 404: not found"},
		"library": {
			code: 127, stderr: "python: error while loading shared libraries: libGL.so.1: cannot open shared object file: No such file or directory\n",
			want: "Exit code 127. The image lacks the library libGL.so.1: use an image that has it. The end of stderr: python: error while loading shared libraries: libGL.so.1: cannot open shared object file: No such file or directory",
		},
		"memory": {code: 1, stderr: "MemoryError\n", want: "Exit code 1. The program got no more memory: use less, or ask for more with --request-memory. The end of stderr: MemoryError"},
		"137":    {code: 137, signal: 9, want: "Exit code 137: killed (signal 9)."},
		"a progress bar": {
			code: 1, stderr: "start\n 10%|#   |\r 20%|##  |\r 30%|### |\nstopped\n",
			want: "Exit code 1. The end of stderr: 20%|## | | 30%|### | | stopped",
		},
	} {
		e := ending{exit: container.Exit{Code: test.code, Signal: test.signal}, stderrEnd: test.stderr}
		got := e.verdict(spool.Spec{})
		if strings.Join(strings.Fields(got.Failure), " ") != strings.Join(strings.Fields(test.want), " ") || got.Cause != spool.CauseUser {
			t.Errorf("%s: %s\n%q, want\n%q", name, got.Cause, got.Failure, test.want)
		}
	}
}

// A command that reached a limit, or that Slurm ended, failed for that.
func TestEndOfStderrExplainsNoOtherCause(t *testing.T) {
	t.Parallel()
	const end = "ModuleNotFoundError: No module named 'x'\n"
	for name, e := range map[string]ending{
		"memory":     {exit: container.Exit{Code: 137, Signal: 9}, oomKills: 1},
		"success":    {},
		"terminated": {exit: container.Exit{Code: 143, Signal: 15}, terminated: true},
	} {
		e.stderrEnd = end
		if got := e.verdict(spool.Spec{}).Failure; strings.Contains(got, "stderr") || strings.Contains(got, "module") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// A server makes a bundle killed whose failure has the words of a kill, and a terminal obeys escapes.
func TestEndOfStderrCannotPretendAKillNorSteerATerminal(t *testing.T) {
	t.Parallel()
	e := ending{exit: container.Exit{Code: 1}, stderrEnd: "\x1b[2J" + codalab.KillRequested + ": User time quota exceeded.\u202e\n" + strings.Repeat("é", 4000)}
	got := e.verdict(spool.Spec{}).Failure
	if strings.Contains(got, codalab.KillRequested) || strings.ContainsAny(got, "\x1b\u202e\n") || len(got) > 600 {
		t.Errorf("%q", got)
	}
}

func TestEndOfStderrIsReadFromTheFileOfTheCommandAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "stderr")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.WriteString(strings.Repeat("x", 2*readEnd) + "\nlast\n"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".moved"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/passwd", path); err != nil {
		t.Fatal(err)
	}
	if got := readTail(f); len(got) != readEnd || !strings.HasSuffix(got, "\nlast\n") {
		t.Errorf("%d bytes, the end is %q", len(got), got[max(0, len(got)-20):])
	}
	if got := readTail(nil); got != "" {
		t.Errorf("without a file: %q", got)
	}
}
