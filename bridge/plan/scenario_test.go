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

var rewrite = flag.Bool("rewrite", false, "rewrite what the scenarios and docs/state-machine.md say")

// TestScenarios plays the files of testdata, each of which tells one hazard.
//
// A file is made of steps, with an empty line after each; lines that begin with
// # are the story. A step is one or more commands, a line of four hyphens, and
// what came of it. The news of one step reach the row together. With -rewrite
// what came is written down instead of compared.
//
// The commands:
//
//	policy key=value…            what the site decided: see world.setPolicy
//	row phase=… [key=value…]     a bundle that came to this phase the ordinary way
//	disk free=12g                how much of the shared disk's 1t is free; the low water is 50g
//	batch [observed=no]          staged rows go to Slurm, as far as there is room
//	tick 90s                     time passes; the row is decided whenever it is due
//	crash [unsaved] [down=2h]    the bridge dies and is started again; unsaved: before the last decision was saved
//	crash clock=-2h              meanwhile somebody sets the clock
//	message kill|run|…           the server says something
//	slurm job=7 state=… [name=…] [comment=ours]
//	                             a whole snapshot; none: without a job of ours; away: no answer, or half of one
//	accounts job=7 state=…       the accounting database's answer, in the same words
//	note started|exit|…          the attempt's records, as one reading finds them; none: it finds nothing
//	remark text=…                the bridge has something for the history
//	answer EFFECT …              how an effect ended that the row wanted
//	strays job=9 …               a snapshot is searched for jobs without a row
//	report                       what a check-in tells the server
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
				t.Errorf("%s (-written +played; go test ./bridge/plan -run Scenario -rewrite writes it down):\n%s", name, diff)
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

// play runs a scenario and returns its text with what came of each step.
// record is told each decision.
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
		for i < len(lines) && lines[i] != "" { // what came of it when it was written
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

// words splits a command; what stands in double quotes is part of one word.
func words(line string) []string {
	quoted := false
	return strings.FieldsFunc(line, func(r rune) bool {
		if r == '"' {
			quoted = !quoted
		}
		return r == ' ' && !quoted
	})
}
