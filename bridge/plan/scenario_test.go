package plan_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "rewrite what the scenarios and docs/contributors/state-machine.md say")

// TestScenarios plays the files of testdata, one for each hazard.
//
// A file consists of steps, with an empty line after each; lines that begin with # are comments.
// A step is one or more commands, a line of four hyphens, and the result. All news of one step
// reaches the row together. With -rewrite the results are written instead of compared.
//
// The commands:
//
//	policy key=value…            the site's configuration: see world.setPolicy
//	row phase=… [key=value…]     a bundle that reached this phase in the ordinary way
//	disk free=12g                how much of the shared disk's 1t is free; the low water is 50g
//	batch                        a staged row is submitted
//	tick 90s                     time passes; the row is decided whenever it is due
//	crash [unsaved] [down=2h]    the bridge dies and is started again; unsaved: before the last decision was saved
//	crash clock=-2h              the clock is set during that
//	message kill|run|…           a message of the server's
//	unanswered                   a check-in that reported the verdict got no answer
//	give-back; leave             the worker gives its runs back; it waits for no results any more
//	restaged                     the server has answered the check-in that gave the bundle back
//	slurm job=7 state=… [name=…] [comment=ours] [limit=65m]
//	                             a whole snapshot; none: without the bridge's job; away: no answer, or half of one
//	accounting job=7 state=…     the accounting database's answer, in the same form
//	note started|exit|…          one reading of the attempt's records; none: there are none
//	remark text=…                a remark for the bundle's history
//	answer EFFECT …              how an effect ended; cut: it was cancelled
//	answer confirm state=… [here] [asked=5s]
//	                             the bundle as the server shows it; here: claimed from this host; asked before now
//	orphans job=9 …              a snapshot is searched for orphan jobs
//	report                       the row's part of a check-in
func TestScenarios(t *testing.T) {
	t.Parallel()
	for _, name := range scenarios(t) {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			t.Parallel()
			before, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			after := play(t, name, string(before), func(move) {})
			if *rewrite {
				writeDown(t, name, after)
				return
			}
			if diff := cmp.Diff(strings.Split(string(before), "\n"), strings.Split(after, "\n")); diff != "" {
				t.Errorf("%s (-written +played; go test ./bridge/plan -run Scenario -rewrite):\n%s", name, diff)
			}
		})
	}
}

// writeDown replaces a file at once: other tests may be reading it.
func writeDown(t *testing.T, name, text string) {
	t.Helper()
	err := os.WriteFile(name+".new", []byte(text), 0o644)
	if err := errors.Join(err, os.Rename(name+".new", name)); err != nil {
		t.Fatal(err)
	}
}

// scenarios lists the files.
func scenarios(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(names) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	return names
}

// play plays a scenario and returns its text with the results of this run. It calls record with
// each decision.
func play(t *testing.T, name, text string, record func(move)) string {
	t.Helper()
	w := newWorld()
	w.record = record
	var out strings.Builder
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		if lines[i] == "" || strings.HasPrefix(lines[i], "#") {
			fmt.Fprintln(&out, lines[i])
			continue
		}
		at := i + 1
		for ; i < len(lines) && lines[i] != "" && lines[i] != "----"; i++ {
			fmt.Fprintln(&out, lines[i])
			if err := w.command(words(lines[i])); err != nil {
				t.Fatalf("%s:%d: %v", name, i+1, err)
			}
		}
		for i < len(lines) && lines[i] != "" { // the result of an earlier run
			i++
		}
		if err := w.flush(); err != nil {
			t.Fatalf("%s:%d: %v", name, at, err)
		}
		fmt.Fprintf(&out, "----\n%s", w.out.String())
		w.out.Reset()
		if i < len(lines) {
			fmt.Fprintln(&out)
		}
	}
	return out.String()
}

// words splits a command; text in double quotes is part of one word.
func words(line string) []string {
	quoted := false
	return strings.FieldsFunc(line, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return r == ' ' && !quoted
	})
}
