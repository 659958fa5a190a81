package spool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// slots makes a pack's list of one member, and returns its slots as the worker sees them.
func slots(t *testing.T, dir string) (d Disk, list string, worker *Slots) {
	t.Helper()
	d = mounted(t, dir)
	m := Members{Submission: "b1.7", Attempts: []Member{{Bundle: "0x0", Name: "1-b1"}}}
	must(t, d.WriteMembers(m))
	return d, m.Name(), SlotsOf(d.Layout.MembersPath(m.Name()), m.Submission)
}

// slotOf is a slot with these bundles.
func slotOf(bundles ...string) Slot {
	s := Slot{Submission: "b1.7"}
	for _, b := range bundles {
		s.Attempts = append(s.Attempts, Member{Bundle: b, Name: "1-b1"})
	}
	return s
}

func wantJoined(t *testing.T, d Disk, list string, n int, s Slot, want bool) {
	t.Helper()
	if joined, err := d.Join(t.Context(), list, n, s); err != nil || joined != want {
		t.Errorf("slot %d with %v: joined %v, %v", n, s.Attempts, joined, err)
	}
}

// wantTaken checks what the worker gets of Look or Close.
func wantTaken(t *testing.T, take func() ([]Attempt, error), bundles ...string) {
	t.Helper()
	got, err := take()
	must(t, err)
	var names []string
	for _, a := range got {
		names = append(names, filepath.Base(filepath.Dir(a.Dir)))
	}
	if !slices.Equal(names, bundles) {
		t.Errorf("the worker gets %v, want %v", names, bundles)
	}
}

func TestMembersJoinUntilTheListIsClosed(t *testing.T) {
	t.Parallel()
	d, list, worker := slots(t, t.TempDir())
	closing := func() ([]Attempt, error) { return worker.Close(t.Context()) }
	wantTaken(t, worker.Look)
	wantJoined(t, d, list, 1, slotOf("0x1", "0x2"), true)
	wantTaken(t, worker.Look, "0x1", "0x2")
	wantTaken(t, worker.Look)
	wantJoined(t, d, list, 2, slotOf("0x3"), true)
	wantJoined(t, d, list, 3, slotOf("0x4"), true)
	wantTaken(t, closing, "0x3")
	wantTaken(t, worker.Look, "0x4")
	wantTaken(t, closing)
	wantTaken(t, closing)
	wantJoined(t, d, list, 4, slotOf("0x5"), false)
	wantTaken(t, worker.Look)
	wantJoined(t, d, list, 2, slotOf("0x3"), true) // a repetition after a crash
	wantJoined(t, d, list, 2, slotOf("0x5"), false)
	other := slotOf("0x3")
	other.Submission = "b1.8"
	wantJoined(t, d, list, 2, other, false)

	for range 2 { // a second job of the same pack
		again := SlotsOf(d.Layout.MembersPath(list), "b1.7")
		for _, want := range [][]string{{"0x1", "0x2"}, {"0x3"}, {"0x4"}, nil} {
			wantTaken(t, func() ([]Attempt, error) { return again.Close(t.Context()) }, want...)
		}
	}
	lists, err := d.Members(func(submission string) bool { return submission == "b1.7" })
	must(t, err)
	if len(lists) != 1 || len(lists[0].Attempts) != 1 || !slices.Equal(lists[0].Joined, slotOf("0x1", "0x2", "0x3", "0x4").Attempts) {
		t.Errorf("on the disk: %+v", lists)
	}
	files, err := d.MembersFiles()
	must(t, err)
	for _, f := range files {
		if f.Submission != "b1.7" {
			t.Errorf("%s is of submission %q", f.Name, f.Submission)
		}
		must(t, d.RemoveMembers(f))
	}
	if left, err := os.ReadDir(d.Layout.Arrays()); err != nil || len(left) > 0 || len(files) != 6 {
		t.Errorf("%d files, left: %v, %v", len(files), left, err)
	}
}

// A bridge that is killed repeats the slot. The worker has to get the members whether it was killed before or after the hint.
func TestSlotOfABridgeThatWasKilledIsRepeated(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(d Disk, path string){
		"before its link": func(_ Disk, path string) {
			must(t, os.WriteFile(filepath.Join(filepath.Dir(path), "."+filepath.Base(slotPath(path, 1))+".tmp-123"), []byte("{"), 0o600))
		},
		"before its hint": func(_ Disk, path string) {
			_, err := settleSlot(t.Context(), path, 1, slotOf("0x1"))
			must(t, err)
		},
		"after its hint": func(d Disk, path string) {
			_, err := d.Join(t.Context(), strings.TrimSuffix(filepath.Base(path), ".json"), 1, slotOf("0x1"))
			must(t, err)
		},
	} {
		for _, closes := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, the worker closes: %t", name, closes), func(t *testing.T) {
				t.Parallel()
				d, list, worker := slots(t, t.TempDir())
				before(d, d.Layout.MembersPath(list))
				stood := name != "before its link"
				if closes {
					var want []string
					if stood {
						want = []string{"0x1"}
					}
					wantTaken(t, func() ([]Attempt, error) { return worker.Close(t.Context()) }, want...)
				}
				wantJoined(t, d, list, 1, slotOf("0x1"), stood || !closes)
				if !closes {
					wantTaken(t, worker.Look, "0x1")
				}
				files, err := d.MembersFiles()
				must(t, err)
				for _, f := range files { // the temporary file goes with the others
					must(t, d.RemoveMembers(f))
				}
				if left, err := os.ReadDir(d.Layout.Arrays()); err != nil || len(left) > 0 {
					t.Errorf("left: %v, %v", left, err)
				}
			})
		}
	}
}

func TestSlotThatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	over, end := context.WithCancel(t.Context())
	end() // one try
	for name, text := range map[string]string{
		"another version":      `{"format":99,"submission":"b1.7","closed":true}`,
		"half a record":        `{"format":1,"submi`,
		"neither":              `{"format":1,"submission":"b1.7"}`,
		"both":                 `{"format":1,"submission":"b1.7","closed":true,"attempts":[{"bundle":"0x1","name":"1-b1"}]}`,
		"of another job":       `{"format":1,"submission":"b1.8","attempts":[{"bundle":"0x1","name":"1-b1"}]}`,
		"nothing, and no file": "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, list, worker := slots(t, t.TempDir())
			path := d.Layout.MembersPath(list)
			if text != "" {
				must(t, os.WriteFile(slotPath(path, 1), []byte(text), 0o600))
			}
			must(t, writeHint(path, 1))
			if got, err := worker.Look(); err == nil {
				t.Errorf("look: %v", got)
			}
			if text == "" {
				return
			}
			if got, err := worker.Close(over); err == nil || worker.closed {
				t.Errorf("close: %v, closed %v", got, worker.closed)
			}
			if joined, err := d.Join(over, list, 1, slotOf("0x9")); joined || err == nil && name != "of another job" {
				t.Errorf("joined %v, %v", joined, err)
			}
		})
	}
}

func TestSlotLeadsNowhereElse(t *testing.T) {
	t.Parallel()
	d, list, _ := slots(t, t.TempDir())
	for _, c := range []struct {
		list string
		n    int
		slot Slot
	}{
		{"", 1, slotOf("0x1")},
		{"../../x", 1, slotOf("0x1")},
		{list + ".1", 0, slotOf("0x1")},
		{list, 0, slotOf("0x1")},
		{list, -1, slotOf("0x1")},
		{list, 1, slotOf()},
		{list, 1, Slot{Submission: "b1.7", Closed: true}},
	} {
		if joined, err := d.Join(t.Context(), c.list, c.n, c.slot); err == nil {
			t.Errorf("%+v: joined %v", c, joined)
		}
	}
	if files, err := d.MembersFiles(); err != nil || len(files) != 1 {
		t.Errorf("on the disk: %v, %v", files, err)
	}
}

// slotRacer, when set in the environment of this test program, is the number of lists whose first slot the program settles in the
// layout that is its argument. It closes the lists, or joins a bundle to them, which slotBundle names.
const (
	slotRacer  = "CLTEST_SPOOL_SLOTS"
	slotBundle = "CLTEST_SPOOL_BUNDLE"
)

// slotVerdict is what one process believes of one list.
type slotVerdict struct {
	List   int
	Joined bool
	// Got are the attempts that the worker got.
	Got []Attempt
}

// raceForSlots settles the slots of n lists, in any order, when its standard input ends.
func raceForSlots(dir string, n int, bundle string) error {
	out := json.NewEncoder(os.Stdout)
	if err := testenv.Ready(); err != nil {
		return err
	}
	d := Disk{Layout: Layout(dir), Bridge: "b1"}
	for _, i := range rand.Perm(n) {
		v := slotVerdict{List: i}
		list := fmt.Sprintf("b1.7-%016x", i)
		var err error
		if bundle != "" {
			v.Joined, err = d.Join(context.Background(), list, 1, slotOf(bundle))
		} else {
			v.Got, err = SlotsOf(d.Layout.MembersPath(list), "b1.7").Close(context.Background())
		}
		if err == nil {
			err = out.Encode(v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func TestManyProcessesAgreeOnEachSlot(t *testing.T) {
	t.Parallel()
	const processes, lists = 48, 20
	dir := t.TempDir()
	d, _, _ := slots(t, dir)
	bundleOf := func(i int) string { return []string{"", "0x1", "", "0x2"}[i%4] } // each second one is a worker
	printed := testenv.Race(t, processes, dir, func(i int) []string {
		return []string{slotRacer + "=" + strconv.Itoa(lists), slotBundle + "=" + bundleOf(i)}
	})
	standing := make([]string, lists) // the bundle that has joined
	for i := range lists {
		members, err := readSlots(d.Layout.MembersPath(fmt.Sprintf("b1.7-%016x", i)))
		must(t, err)
		for _, m := range members {
			standing[i] += m.Bundle
		}
	}
	closed := 0
	for i, lines := range printed {
		said := json.NewDecoder(strings.NewReader(lines))
		for range lists {
			var v slotVerdict
			must(t, said.Decode(&v))
			want := standing[v.List]
			if want == "" {
				closed++
			}
			if bundle := bundleOf(i); bundle != "" && v.Joined != (bundle == want) {
				t.Errorf("list %d: %s believes that it has joined: %v, and %q has", v.List, bundle, v.Joined, want)
			} else if bundle == "" && (len(v.Got) == 1) != (want != "") {
				t.Errorf("list %d: a worker got %v, and %q has joined", v.List, v.Got, want)
			}
		}
	}
	t.Logf("%d of %d lists were closed", closed/processes, lists)
}

// The worker and the bridge race for each slot in turn, until one of them has closed the list.
func TestEachMemberThatHasJoinedReachesTheWorkerOnce(t *testing.T) {
	t.Parallel()
	for range 50 {
		d, list, worker := slots(t, t.TempDir())
		var joined, got []string
		var both sync.WaitGroup
		both.Go(func() {
			for n := 1; ; n++ {
				bundle := fmt.Sprintf("0x%d", n)
				ok, err := d.Join(t.Context(), list, n, slotOf(bundle))
				if err != nil {
					t.Error(err)
				}
				if !ok {
					return
				}
				joined = append(joined, bundle)
			}
		})
		both.Go(func() {
			for !worker.closed {
				take := worker.Look
				if rand.N(4) == 0 {
					take = func() ([]Attempt, error) { return worker.Close(t.Context()) }
				}
				attempts, err := take()
				if err != nil {
					t.Error(err)
				}
				for _, a := range attempts {
					got = append(got, filepath.Base(filepath.Dir(a.Dir)))
				}
			}
		})
		both.Wait()
		if !slices.Equal(joined, got) {
			t.Fatalf("joined: %v; the worker got: %v", joined, got)
		}
	}
}

func TestWorkerLooksAtOneFileWhileNothingJoins(t *testing.T) {
	t.Parallel()
	d, list, worker := slots(t, t.TempDir())
	wantTaken(t, worker.Look)
	// It makes the file of hints, so that no NFS client remembers that there is none.
	if _, err := os.Stat(hintsPath(d.Layout.MembersPath(list))); err != nil {
		t.Error(err)
	}
	_, err := settleSlot(t.Context(), d.Layout.MembersPath(list), 1, slotOf("0x1"))
	must(t, err)
	wantTaken(t, worker.Look) // no hint, so it does not look for the slot
	must(t, os.RemoveAll(d.Layout.Arrays()))
	if _, err := worker.Look(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lists are gone: %v", err)
	}
}
