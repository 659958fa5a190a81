package browsertest

import (
	"encoding/json"
	"strings"
	"testing"
)

// Chosen runs are compared side by side, with all rows or those that differ, and one of them leads to where it came from.
func TestRunsAreCompared(t *testing.T) {
	t.Parallel()
	s := newSite(t, "ann")
	first := s.cl("ann", "run", "train --lr 0.1", "-n", "first", "--request-cpus", "2")
	s.cl("ann", "run", "train --lr 0.2", "-n", "second", "--request-cpus", "2")
	p := s.visit(desk)
	p.signIn("ann")
	p.sees("first", "second")
	p.chooses("first")
	p.chooses("second")
	p.clicks("Compare the chosen")
	p.sees("train --lr 0.1", "train --lr 0.2", "command differs", "request_cpus", "cl diff")
	p.clicks("Show only rows that differ")
	p.sees("Show all rows", "command differs")
	if strings.Contains(p.shown(), "request_cpus") {
		t.Errorf("rows that do not differ are there: %s", p.shown())
	}
	p.clicks("Show all rows")
	p.sees("request_cpus")
	p.clicks("first")
	p.sees("A run of ann", "cl rerun --wait "+first)
	address := evaluate[string](p, `document.querySelector("a[href$='provenance.json']").getAttribute("href")`)
	document := evaluate[string](p, `(() => { const r = new XMLHttpRequest(); r.open("GET", "`+address+`", false); r.send(); return r.responseText; })()`)
	if !json.Valid([]byte(document)) || !strings.Contains(document, `"description": "train --lr 0.1"`) {
		t.Errorf("the provenance is %s", document)
	}
}
