package spool

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/lazyregexp"
)

// Members lists the attempts that share one submission: task i of an array begins Attempts[i], and the only worker of a pack begins
// them all, in this order.
type Members struct {
	Format int `json:"format"`
	// Submission is that of the attempts' specifications (Spec.Submission). A bridge whose ledger was restored from an older copy may
	// use it again for other attempts.
	Submission string   `json:"submission"`
	Attempts   []Member `json:"attempts"`
	// Joined are the members in the slots of the list of a pack (Slot). Only Disk.Members sets it.
	Joined []Member `json:"-"`
}

// Member is one attempt of Members.
type Member struct {
	Bundle string      `json:"bundle"`
	Name   AttemptName `json:"name"`
	// Identity is the digest of the bundle's identity; empty in lists of older bridges.
	Identity string `json:"identity,omitempty"`
}

func (m Members) check() error { return checkFormat(m.Format) }

// Name returns the name of the list: the submission, and a digest of the attempts.
func (m Members) Name() string {
	digest := sha256.New()
	for _, a := range m.Attempts {
		_, _ = fmt.Fprintf(digest, "%s %s\n", a.Bundle, a.Name) // it never fails: hash.Hash
	}
	return m.Submission + "-" + hex.EncodeToString(digest.Sum(nil)[:8])
}

// membersFile matches the names of the files of lists of members and of their slots, and their temporary ones.
var membersFile = lazyregexp.New(`^\.?([0-9A-Za-z]+\.[0-9]+)-[0-9a-f]{16}(\.[1-9][0-9]*)?\.(?:json|out|slots)(?:\.tmp-[0-9]+)?$`)

// listFile matches those of lists alone.
var listFile = lazyregexp.New(`^[0-9A-Za-z]+\.[0-9]+-[0-9a-f]{16}\.json$`)

// Arrays returns the directory of the members and of the output of arrays and packs. The first record makes it.
func (l Layout) Arrays() string { return filepath.Join(l.spool(), arraysName) }

const arraysName = "arrays"

// MembersPath returns the path of the list of members of a name (Members.Name).
func (l Layout) MembersPath(name string) string { return filepath.Join(l.Arrays(), name+".json") }

// ArrayOutputPath returns the path of the output of all batch scripts of the submission with that list.
func (l Layout) ArrayOutputPath(name string) string { return filepath.Join(l.Arrays(), name+".out") }

// WriteMembers writes the list of a submission's members for its workers. A repetition writes the same list.
func (d Disk) WriteMembers(m Members) error {
	if !membersFile().MatchString(m.Name() + ".json") {
		return fmt.Errorf("write members: %q names no submission", m.Submission)
	}
	if err := os.Mkdir(d.Layout.Arrays(), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("write members: %w", err)
	}
	m.Format = Format
	return atomicfile.WriteJSON(d.Layout.MembersPath(m.Name()), m)
}

// ReadMember returns the attempt that a task of an array begins, and its submission. path is that of the list of members.
func ReadMember(path string, task int) (a Attempt, submission string, err error) {
	attempts, submission, err := ReadMembers(path)
	if err != nil {
		return Attempt{}, "", err
	}
	if task < 0 || task >= len(attempts) {
		return Attempt{}, "", fmt.Errorf("read members: %s has no task %d", path, task)
	}
	return attempts[task], submission, nil
}

// ReadMembers returns the attempts of a list of members, in order, and their submission.
func ReadMembers(path string) (attempts []Attempt, submission string, err error) {
	m, err := readRecord[Members](path)
	if err != nil {
		return nil, "", err
	}
	return attemptsOf(path, m.Attempts), m.Submission, nil
}

// MembersFile is a file that MembersFiles found: a list of members, one of its slots, the output of its submission, or a file whose
// writer was cut short.
type MembersFile struct {
	Name, Submission string
	// Written is the time of the last line of the output; zero for a list.
	Written time.Time
}

// MembersFiles lists the files of lists of members on the disk.
func (d Disk) MembersFiles() ([]MembersFile, error) {
	entries, err := os.ReadDir(d.Layout.Arrays())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // there was none yet
	}
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	var found []MembersFile
	for _, e := range entries {
		if parts := membersFile().FindStringSubmatch(e.Name()); parts != nil {
			f := MembersFile{Name: e.Name(), Submission: parts[1]}
			if info, err := e.Info(); err == nil && filepath.Ext(f.Name) == ".out" {
				f.Written = info.ModTime()
			}
			found = append(found, f)
		}
	}
	return found, nil
}

// Members returns the lists of members of submissions that are on the disk, with the members that have joined.
func (d Disk) Members(of func(submission string) bool) ([]Members, error) {
	files, err := d.MembersFiles()
	if err != nil {
		return nil, err
	}
	var lists []Members
	for _, f := range files {
		if !of(f.Submission) || !listFile().MatchString(f.Name) {
			continue
		}
		path := filepath.Join(d.Layout.Arrays(), f.Name)
		m, err := readRecord[Members](path)
		if errors.Is(err, ErrNone) {
			continue // it was removed meanwhile
		}
		if err == nil {
			m.Joined, err = readSlots(path)
		}
		if err != nil {
			return nil, err
		}
		lists = append(lists, m)
	}
	return lists, nil
}

// RemoveMembers removes a file of a submission of which no member can begin any more.
func (d Disk) RemoveMembers(f MembersFile) error {
	if err := os.Remove(filepath.Join(d.Layout.Arrays(), f.Name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove members: %w", err)
	}
	return nil
}
