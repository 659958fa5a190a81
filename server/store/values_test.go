package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/keywords"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// fill gives a bundle contents of a name.
func (l library) fill(letter, contents string) {
	l.Helper()
	_, err := l.Change(l.Context(), uuidOf(letter), func(b *store.Bundle) error {
		b.Contents = contents
		return nil
	})
	must(l.T, err)
}

// set writes the values of all bundles without values, which are numbers or texts by path and by letter.
func (l library) set(values map[string]map[string]string) {
	l.Helper()
	found, err := l.Unvalued(l.Context(), "")
	must(l.T, err)
	all := map[string][]store.Value{}
	for letter, of := range values {
		for path, text := range of {
			all[uuidOf(letter)] = append(all[uuidOf(letter)], store.Value{Path: path, Number: codalab.Number(text), Text: text})
		}
	}
	must(l.T, l.SetValues(l.Context(), found, all))
}

// valued is a library in which some bundles have an accuracy.
func valued(l library) {
	l.Helper()
	for _, letter := range []string{"a", "b", "c", "d", "f"} {
		l.fill(letter, letter+"-contents")
	}
	l.set(map[string]map[string]string{
		"a": {"/s.json:acc": "0.9", "/s.json:opt": "adam"},
		"b": {"/s.json:acc": "NaN"},
		"c": {"/s.json:acc": "10", "/s.json:opt": "SGD"},
		"d": {"/s.json:acc": "0.95"},
		"f": {"/s.json:acc": "-1e-3"},
	})
}

func TestValuesSortAndChooseBundles(t *testing.T) {
	t.Parallel()
	onLibraries(t, func(t *testing.T, l library) {
		valued(l)
		for search, want := range map[string]string{
			"/s.json:acc=.sort-": "cdafb", "/s.json:acc=.sort": "fadcb", "/s.json:acc=.sort- .limit=2": "cd", "/s.json:acc": "abcdf", "/s.json:nosuch": "",
			"/s.json:acc<0.95": "af", "/s.json:acc<=0.95": "adf", "/s.json:acc>0.9": "cd", "/s.json:acc>=9e-1": "acd", "/s.json:acc=0.90": "a",
			"/s.json:acc=nan": "b", "/s.json:acc!=10,0.9": "bdf", "/s.json:opt=ADAM": "a", "/s.json:opt=s%": "c", "/s.json:opt=.sort": "ca",
			"/s.json:opt<1": "", "/s.json:acc=.sort name=a%": "a", "size>20": "def", "time>=10": "bd", "time<10 .mine": "", "state!=failed": "abcdf",
			"tags!=red": "bcdef", "exitcode!=0": "bcdef", "/s.json:acc_=1": "",
		} {
			if got := l.find(store.RootID, search); got != want {
				t.Errorf("%q: %q, want %q", search, got, want)
			}
		}
		if got := l.measure(store.RootID, "/s.json:acc=.sum /s.json:acc>0"); got != "11.85" {
			t.Errorf("total %s", got)
		}
		for search, want := range map[string]string{"name<5": "name is no number that < can compare", "owner>1": "owner is no number that > can compare"} {
			q, err := keywords.Parse([]string{search})
			must(t, err)
			var no *keywords.Error
			if _, err = l.SearchBundles(t.Context(), store.User{ID: "0xme"}, q); !errors.As(err, &no) || no.Error() != want {
				t.Errorf("%s: %v, want %s", search, err, want)
			}
		}
	})
}

// A search by a value tells nothing of a bundle that its user may not read: d is one, with the second best value.
func TestValuesOfUnreadableBundlesStayHidden(t *testing.T) {
	t.Parallel()
	onLibraries(t, func(t *testing.T, l library) {
		valued(l)
		for search, want := range map[string]string{
			"/s.json:acc=.sort-": "cafb", "/s.json:acc=0.95": "", "/s.json:acc>0.9": "c", "/s.json:acc!=0.95": "abcf", "/s.json:acc": "abcf",
		} {
			if got := l.find("0xme", search); got != want {
				t.Errorf("%q: %q, want %q", search, got, want)
			}
			if got := l.measure("0xme", search+" .count"); got != fmt.Sprint(len(want)) {
				t.Errorf("%q counts %s", search, got)
			}
		}
		if got := l.measure("0xme", "/s.json:acc=.sum /s.json:acc=0.95"); got != "null" {
			t.Errorf("total %s", got)
		}
	})
}

func TestValuesBelongToTheContents(t *testing.T) {
	t.Parallel()
	onLibraries(t, func(t *testing.T, l library) {
		valued(l)
		pending := func(want string) []store.Bundle {
			t.Helper()
			found, err := l.Unvalued(t.Context(), "")
			must(t, err)
			letters := ""
			for _, b := range found {
				letters += b.UUID[len(b.UUID)-1:]
			}
			if letters != want {
				t.Errorf("without values: %q, want %q", letters, want)
			}
			return found
		}
		pending("")
		l.fill("a", "others")
		l.fill("c", "") // a lost run begins again
		found := pending("ac")
		l.fill("a", "still-others") // while they were read
		must(t, l.SetValues(t.Context(), found, map[string][]store.Value{uuidOf("a"): {{Path: "/s.json:acc", Text: "stale"}}}))
		pending("a")
		if got := l.find(store.RootID, "/s.json:acc=.sort"); got != "fadb" { // a's old value stays until the new one is read
			t.Errorf("found %s", got)
		}
		l.set(nil)
		if got := l.find(store.RootID, "/s.json:acc"); got != "bdf" {
			t.Errorf("found %s", got)
		}
		must(t, l.DeleteBundles(t.Context(), []string{uuidOf("f")}, store.Time{Time: now}, func(store.Bundle) error { return nil }))
		if got := l.find(store.RootID, "/s.json:acc"); got != "bd" {
			t.Errorf("found %s", got)
		}
	})
}

// Both databases take as many values as a bundle may have.
func TestManyValues(t *testing.T) {
	t.Parallel()
	onLibraries(t, func(t *testing.T, l library) {
		l.fill("a", "contents")
		of := map[string]string{}
		for i := range 1000 {
			of[fmt.Sprintf("/s.json:%s/%d", strings.Repeat("é", 100), i)] = strings.Repeat("1", 200)
		}
		l.set(map[string]map[string]string{"a": of})
		if got := l.find(store.RootID, fmt.Sprintf("/s.json:%s/999>1e199", strings.Repeat("é", 100))); got != "a" {
			t.Errorf("found %q", got)
		}
	})
}
