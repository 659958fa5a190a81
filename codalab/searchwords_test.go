package codalab_test

import (
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/spelling"
)

func TestMisspeltKeywordsAreNamedWithTheNearest(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]string{
		"tag=x":              "There is no key tag to search by; did you mean tags?",
		"statee=failed":      "There is no key statee to search by; did you mean state?",
		"name=a statee!=x":   "There is no key statee to search by; did you mean state?",
		"acc<1":              "There is no key acc to search by; cl help search lists the keys.",
		"nosuchkey=.sort":    "There is no key nosuchkey to search by; cl help search lists the keys.",
		".limits=3":          "There is no key .limits to search by; did you mean .limit?",
		".mien":              "There is no keyword .mien; did you mean .mine?",
		"state=faild":        `There is no state "faild"; did you mean failed?`,
		"state=ready,faild":  `There is no state "faild"; did you mean failed?`,
		"type=job":           `There is no type of bundles "job": it is one of run, dataset, make, program, private.`,
		"size=.srot":         "size=.srot is no order; did you mean size=.sort?",
		"":                   "",
		"name=a .mine a.txt": "", ".txt": "", "/stats.json:acc=.sort-": "", "state=FAILED": "", "state=f%": "", "dependency/x=0x1": "",
		"secrets=TOKEN": "", "exitcode=1 request_gpus>0 .limit=3 license=MIT link_url=/x": "", "=text": "", "state=.sort": "",
	} {
		if got := codalab.SearchMistake(strings.Fields(words), spelling.Nearest); got != want {
			t.Errorf("%q: %q, want %q", words, got, want)
		}
	}
}

func TestOnlyFiniteNumbersAreNumbers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]float64{"1": 1, " -2.50 ": -2.5, "1e-3": 0.001, ".5": 0.5, "+7.": 7} {
		if n := codalab.Number(text); n == nil || *n != want {
			t.Errorf("%q is %v, want %v", text, n, want)
		}
	}
	for _, text := range []string{"", "nan", "NaN", "inf", "-Infinity", "1e999", "0x10", "1_000", "1,5", "five", "1 2"} {
		if n := codalab.Number(text); n != nil {
			t.Errorf("%q is %v", text, *n)
		}
	}
}
