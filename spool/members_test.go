package spool_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/spool"
)

func members(t *testing.T) (spool.Disk, spool.Members) {
	t.Helper()
	layout := spool.Layout(t.TempDir())
	for _, dir := range layout.Directories() {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	m := spool.Members{Submission: "b1b2b3.7", Attempts: []spool.Member{{Bundle: "0x1", Name: "1-b1b2b3"}, {Bundle: "0x2", Name: "1-b1b2b3"}}}
	return spool.Disk{Layout: layout}, m
}

func TestTaskFindsItsMember(t *testing.T) {
	t.Parallel()
	disk, m := members(t)
	for range 2 { // a repetition writes the same list
		if err := disk.WriteMembers(m); err != nil {
			t.Fatal(err)
		}
	}
	path := disk.Layout.MembersPath(m.Name())
	for i, want := range m.Attempts {
		a, submission, err := spool.ReadMember(path, i)
		if err != nil || submission != m.Submission || a != disk.Layout.Attempt(want.Bundle, want.Name) {
			t.Errorf("task %d: %v of %s, %v", i, a, submission, err)
		}
	}
	for _, task := range []int{-1, 2} {
		if a, _, err := spool.ReadMember(path, task); err == nil {
			t.Errorf("task %d is of %v", task, a)
		}
	}
	if _, _, err := spool.ReadMember(path+"x", 0); !errors.Is(err, spool.ErrNone) {
		t.Errorf("a list that is not there: %v", err)
	}
}

// A bridge whose ledger was restored from an older copy gives the name of a submission again. The tasks of the first array still run the
// members that they were made for.
func TestListsOfOneSubmissionStandSideBySide(t *testing.T) {
	t.Parallel()
	disk, m := members(t)
	other := spool.Members{Submission: m.Submission, Attempts: []spool.Member{{Bundle: "0x3", Name: "1-b1b2b3"}}}
	for _, m := range []spool.Members{m, other} {
		if err := disk.WriteMembers(m); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(disk.Layout.ArrayOutputPath(m.Name()), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cutShort := filepath.Join(disk.Layout.Arrays(), "."+m.Name()+".json.tmp-12345")
	if err := os.WriteFile(cutShort, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if a, _, err := spool.ReadMember(disk.Layout.MembersPath(m.Name()), 0); err != nil || a != disk.Layout.Attempt("0x1", "1-b1b2b3") {
		t.Errorf("the first list has %v, %v", a, err)
	}
	found, err := disk.MembersFiles()
	if err != nil || len(found) != 5 {
		t.Fatalf("on the disk: %+v, %v", found, err)
	}
	for _, f := range found {
		if f.Submission != m.Submission {
			t.Errorf("%s is of submission %s", f.Name, f.Submission)
		}
		if err := disk.RemoveMembers(f); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := os.ReadDir(disk.Layout.Arrays()); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestNameOfASubmissionLeadsNowhereElse(t *testing.T) {
	t.Parallel()
	disk, m := members(t)
	for _, name := range []string{"", "..", "../../x.1", "b.1/../../x", strings.Repeat("b", 10)} {
		m.Submission = name
		if err := disk.WriteMembers(m); err == nil {
			t.Errorf("a list of submission %q was written", name)
		}
	}
	if found, err := filepath.Glob(filepath.Join(string(disk.Layout), "*", "*", "*")); err != nil || len(found) > 0 {
		t.Errorf("written: %v, %v", found, err)
	}
}
