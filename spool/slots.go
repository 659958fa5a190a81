package spool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/internal/linkonce"
	"github.com/cl-slurm/cl-slurm/internal/smallfile"
)

// The list of a pack goes on in slots 1, 2, 3 and so on, so that members can join the pack while its worker runs. A slot is a file
// beside the list that is written once, either by the bridge, with more members, or by the worker, which closes the list when it
// has no more work:
//
//	<list>.json     the first members; written before sbatch
//	<list>.1.json   bridge: more members
//	<list>.2.json   worker: closed
//	<list>.slots    one byte for each slot of the bridge; only a hint
//
// Package linkonce decides which of the two wins a slot. The members of a slot have joined if, and only if, the bridge's slot stands.
// After the slot that closes the list there is none: the bridge writes slot n+1 only after slot n is its own.
//
// The worker looks for the next slot again and again while a place is free. An NFS client may remember for a minute that a name does
// not exist (nfs(5): acdirmax), so the worker does not look for the slot itself. It opens the file of hints, which it makes first: then
// the client asks the server for the file's size (close-to-open consistency). A hint that is late or lost costs time alone, because
// the worker learns from its attempt to close the list which slots there are.

// Slot continues the list of a pack's members, or closes it.
type Slot struct {
	Format     int    `json:"format"`
	Submission string `json:"submission"`
	// Attempts are the members that join, in the order of their turns.
	Attempts []Member `json:"attempts,omitempty"`
	// Closed is set, without attempts, in the slot that closes the list.
	Closed bool `json:"closed,omitempty"`
}

func (s Slot) check() error {
	if err := checkFormat(s.Format); err != nil {
		return err
	}
	if s.Closed != (len(s.Attempts) == 0) {
		return fmt.Errorf("a slot is closed (%t) and has %d members", s.Closed, len(s.Attempts))
	}
	return nil
}

// isSame reports whether both slots have the same members.
func (s Slot) isSame(other Slot) bool {
	return s.Submission == other.Submission && s.Closed == other.Closed && slices.Equal(s.Attempts, other.Attempts)
}

// slotPath returns the path of slot n of a list. path is that of the list.
func slotPath(path string, n int) string {
	return strings.TrimSuffix(path, ".json") + "." + strconv.Itoa(n) + ".json"
}

// hintsPath returns the path of the hints of a list.
func hintsPath(path string) string { return strings.TrimSuffix(path, ".json") + ".slots" }

// settleSlot makes s slot n, if there is none, and returns the slot that stands. It tries until it knows, or until ctx ends.
func settleSlot(ctx context.Context, path string, n int, s Slot) (Slot, error) {
	s.Format = Format
	data, err := json.Marshal(s)
	if err != nil {
		return Slot{}, fmt.Errorf("encode slot: %w", err)
	}
	return linkonce.Settle(ctx, slotPath(path, n), data, 0o600, decode[Slot])
}

// Join adds members to a pack, as slot n of its list. list is the list's name (Members.Name). joined is false if the worker has closed the
// list, or if the slot has other members, which only a bridge with another copy of the ledger writes: then none of the members is in the list. After
// an error the slot may stand or not. A repetition with the same members is harmless, and returns what stands.
func (d Disk) Join(ctx context.Context, list string, n int, s Slot) (joined bool, err error) {
	if !membersFile().MatchString(list+".json") || n < 1 || s.Closed || len(s.Attempts) == 0 {
		return false, fmt.Errorf("join a pack: no slot %d of %q with %d members", n, list, len(s.Attempts))
	}
	path := d.Layout.MembersPath(list)
	standing, err := settleSlot(ctx, path, n, s)
	if err != nil {
		return false, fmt.Errorf("join a pack: %w", err)
	}
	if !standing.isSame(s) {
		return false, nil
	}
	if err := writeHint(path, n); err != nil {
		return false, fmt.Errorf("join a pack: %w", err)
	}
	return true, nil
}

// writeHint tells the worker that slot n exists.
func writeHint(path string, n int) error {
	f, err := os.OpenFile(hintsPath(path), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte("\n"), int64(n-1))
	return errors.Join(err, f.Close())
}

// Slots is a worker's view of the slots of a list. It is not safe for concurrent use.
type Slots struct {
	path, submission string
	taken            int
	closed           bool
}

// SlotsOf returns the slots of a list of members. path is that of the list.
func SlotsOf(path, submission string) *Slots { return &Slots{path: path, submission: submission} }

// Look returns the attempts of the next slot, if a hint shows that the bridge has written it; none otherwise. That it returns none
// proves nothing.
func (s *Slots) Look() ([]Attempt, error) {
	if s.closed {
		return nil, nil
	}
	hints, err := smallfile.Read(hintsPath(s.path))
	if errors.Is(err, fs.ErrNotExist) {
		err = smallfile.Touch(hintsPath(s.path), 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("look for members that join: %w", err)
	}
	if len(hints) <= s.taken {
		return nil, nil
	}
	next, err := readRecord[Slot](slotPath(s.path, s.taken+1))
	if err != nil {
		return nil, fmt.Errorf("look for members that join: %w", err)
	}
	return s.take(next)
}

// Close closes the list, so that no member can join any more. If the bridge has written the next slot before, Close returns the slot's
// attempts, and the list is still open. It tries until it knows, or until ctx ends; once if that has ended. After an error the
// list may be closed or not, and Close may be called again. On a closed list it does nothing.
func (s *Slots) Close(ctx context.Context) ([]Attempt, error) {
	if s.closed {
		return nil, nil
	}
	standing, err := settleSlot(ctx, s.path, s.taken+1, Slot{Submission: s.submission, Closed: true})
	if err != nil {
		return nil, fmt.Errorf("close the list of members: %w", err)
	}
	return s.take(standing)
}

// take takes what stands in the next slot.
func (s *Slots) take(standing Slot) ([]Attempt, error) {
	if standing.Submission != s.submission {
		return nil, fmt.Errorf("%s is of submission %s, and this job is of submission %s", slotPath(s.path, s.taken+1), standing.Submission, s.submission)
	}
	s.taken++
	s.closed = standing.Closed
	return attemptsOf(s.path, standing.Attempts), nil
}

// attemptsOf returns the attempts of members. path is that of their list.
func attemptsOf(path string, members []Member) []Attempt {
	layout := Layout(filepath.Dir(filepath.Dir(filepath.Dir(path))))
	attempts := make([]Attempt, 0, len(members))
	for _, m := range members {
		attempts = append(attempts, layout.Attempt(m.Bundle, m.Name))
	}
	return attempts
}

// readSlots returns the members in the slots of a list, in order. The slots of a list that is in use may be newer.
func readSlots(path string) ([]Member, error) {
	var members []Member
	for n := 1; ; n++ {
		s, err := readRecord[Slot](slotPath(path, n))
		if errors.Is(err, ErrNone) || err == nil && s.Closed {
			return members, nil
		}
		if err != nil {
			return nil, err
		}
		members = append(members, s.Attempts...)
	}
}
