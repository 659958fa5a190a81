package bundlelogs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/heartbeat"
	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/spool"
)

const bundle = "0x1a2b3c4d5e6f708192a3b4c5d6e7f809"

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func TestAllRecordsOfABundleAreInOnePlace(t *testing.T) {
	t.Parallel()
	l := spool.Layout(t.TempDir())
	dir := l.BundleDir(bundle)
	write(t, dir+"/10-b1/slurm.out", "the tenth\n")
	write(t, l.RunDir(bundle, "9-b1")+"/result", "") // the tenth attempt's directory is gone
	write(t, dir+"/9-b1/started", `{"node":"n1"}`)
	write(t, dir+"/9-b1/exit.json", "{}\n")
	write(t, dir+"/9-b1/spec.json", `{"command":"secret"}`)
	write(t, dir+"/9-b1/slurm.out", "10%\r20%\r\nat the end\x1b[2J")
	write(t, l.BundleDir("0x99000000000000000000000000000000")+"/1-b1/slurm.out", "another bundle's\n")
	log := filepath.Join(t.TempDir(), "log")
	write(t, log, "bundle="+bundle+" phase=staging\nbundle=0x99 phase=done\nmsg=x bundle="+bundle)
	found, err := Collect(heartbeat.Explanation{Bundle: bundle, Phase: plan.Running}, l)
	if err := errors.Join(err, found.AddFile(log)); err != nil {
		t.Fatal(err)
	}
	said := Text(found, time.Unix(0, 0))
	for _, want := range []string{
		bundle + " is running\n",
		"\n=== The bridge's log: " + log + "\nbundle=" + bundle + " phase=staging\nmsg=x bundle=" + bundle + "\n",
		"\n=== Attempt 9-b1: " + dir + "/9-b1\nIts files are in " + l.RunDir(bundle, "9-b1") + ".\n\n--- started\n{\"node\":\"n1\"}\n\n--- exit.json\n{}\n\n--- slurm.out\n10%\n20%\nat the end",
		"\n=== Attempt 10-b1: ",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in\n%s", want, said)
		}
	}
	for _, other := range []string{"secret", "another", "0x99", l.RunDir(bundle, "10-b1")} {
		if strings.Contains(said, other) {
			t.Errorf("%q in\n%s", other, said)
		}
	}
	if strings.Index(said, "Attempt 9-b1") > strings.Index(said, "Attempt 10-b1") {
		t.Errorf("the ninth attempt comes after the tenth:\n%s", said)
	}
}

// A job may print gigabytes, and a full disk may leave anything.
func TestLongAndDamagedFilesAreShownAsFarAsTheyCanBe(t *testing.T) {
	t.Parallel()
	l := spool.Layout(t.TempDir())
	dir := filepath.Join(l.BundleDir(bundle), "1-b1")
	line := strings.Repeat("x", 99) + "\n"
	write(t, dir+"/slurm.out", strings.Repeat(line, 2000))
	write(t, dir+"/status.json", "")
	if err := os.Mkdir(dir+"/exit.json", 0o700); err != nil {
		t.Fatal(err)
	}
	found, err := Collect(heartbeat.Explanation{Bundle: bundle}, l)
	if err != nil {
		t.Fatal(err)
	}
	output := found.Attempts[0].Files[2]
	if output.Size != 200_000 || len(output.Text) > mostText || strings.Trim(output.Text, "x\n") != "" || strings.Index(output.Text, "\n") != 99 {
		t.Errorf("%d bytes of %d, which begin %.120q", len(output.Text), output.Size, output.Text)
	}
	said := Text(found, time.Unix(0, 0))
	for _, want := range []string{"--- slurm.out, the end of 195k\n", "--- status.json, which is empty\n", "--- exit.json, which cannot be read: it is no regular file\n"} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in\n%.500s", want, said)
		}
	}
}

func TestBundleWithoutFilesIsExplainedAllTheSame(t *testing.T) {
	t.Parallel()
	found, err := Collect(heartbeat.Explanation{Bundle: bundle, Forgotten: true}, spool.Layout(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	if said := Text(found, time.Unix(0, 0)); !strings.Contains(said, "forgotten") || !strings.Contains(said, "There are no files of an attempt: ") {
		t.Errorf("it says\n%s", said)
	}
}

func TestNewestLinesOfALogAreKept(t *testing.T) {
	t.Parallel()
	var l Logs
	l.Bundle = bundle
	if err := l.addLines(strings.NewReader(strings.Repeat(bundle+" old\n", 5000) + bundle + " new\n" + strings.Repeat("other\n", 10))); err != nil {
		t.Fatal(err)
	}
	if len(l.Lines) != mostLines || l.Lines[mostLines-1] != bundle+" new" {
		t.Errorf("%d lines, the last %q", len(l.Lines), l.Lines[len(l.Lines)-1])
	}
}

// The script prints as journalctl does: lines; nothing and status 1 if none matches; and an error.
func TestJournalIsSearchedForTheBundle(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	path := "PATH=" + bin + ":/usr/bin:/bin"
	for _, c := range []struct {
		script  string
		lines   []string
		trouble string
	}{
		{`echo "2026-11-28T10:00:00+0000 login1 cl-bridge[12]: msg=decided $*"`, []string{"2026-11-28T10:00:00+0000 login1 cl-bridge[12]: msg=decided --user --unit cl-bridge.service --output short-iso --no-pager --quiet --grep " + bundle}, ""},
		{"exit 1", []string{}, "no line names the bundle"},
		{"echo 'No journal files were opened due to insufficient permissions.' >&2; exit 1", []string{}, "insufficient permissions"},
	} {
		testenv.WriteProgram(t, filepath.Join(bin, "journalctl"), []byte("#!/bin/sh\n"+c.script+"\n"))
		l := Logs{Lines: []string{}}
		l.Bundle = bundle
		l.addJournalOf(t.Context(), filepath.Join(bin, "journalctl"), []string{path})
		if diff := cmp.Diff(c.lines, l.Lines); diff != "" || !strings.Contains(l.LogTrouble, c.trouble) || (l.LogTrouble == "") != (c.trouble == "") {
			t.Errorf("%s: trouble %q; lines (-want +got):\n%s", c.script, l.LogTrouble, diff)
		}
	}
}
