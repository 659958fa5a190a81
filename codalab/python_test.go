package codalab_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// recorded reads a file that testdata/python/generate.py has written.
func recorded(t *testing.T, name string, to any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "python", name+".json"))
	if err == nil {
		err = json.Unmarshal(data, to)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// pythonTexts are the texts of one value.
type pythonTexts struct {
	Str  string `json:"str"`
	Repr string `json:"repr"`
	Type string `json:"type"`
}

func textsOf(value any) pythonTexts {
	return pythonTexts{codalab.PythonStr(value), codalab.PythonRepr(value), codalab.PythonType(value)}
}

func TestTextsOfValuesArePythons(t *testing.T) {
	t.Parallel()
	var cases []struct {
		JSON string `json:"json"`
		pythonTexts
	}
	recorded(t, "texts", &cases)
	if len(cases) < 100 {
		t.Errorf("%d values are recorded, want at least 100", len(cases))
	}
	for _, c := range cases {
		value, err := codalab.DecodeExact([]byte(c.JSON))
		if err != nil {
			t.Errorf("%s: %v", c.JSON, err)
			continue
		}
		if diff := cmp.Diff(c.pythonTexts, textsOf(value)); diff != "" {
			t.Errorf("%s: texts differ from Python's (-Python +here):\n%s", c.JSON, diff)
		}
	}
}

func TestTextsOfFloatsArePythons(t *testing.T) {
	t.Parallel()
	var reprs map[string]string
	recorded(t, "floats", &reprs)
	if len(reprs) < 1000 {
		t.Errorf("%d floats are recorded, want at least 1000", len(reprs))
	}
	for text, want := range reprs {
		bits, err := strconv.ParseUint(text, 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		if got := codalab.PythonFloat(math.Float64frombits(bits)).String(); got != want {
			t.Errorf("float with bits %s: got %s, want Python's %s", text, got, want)
		}
	}
}

// TestPrintableCharactersArePythons compares all characters. Only those that Python's version of Unicode
// does not have yet may differ.
func TestPrintableCharactersArePythons(t *testing.T) {
	t.Parallel()
	var python struct {
		// Printable and Unassigned hold the first and the last character of each range.
		Printable, Unassigned []rune
		Unicode               string
	}
	recorded(t, "characters", &python)
	inRanges := func(ranges []rune) map[rune]bool {
		set := map[rune]bool{}
		for i := 0; i+1 < len(ranges); i += 2 {
			for c := ranges[i]; c <= ranges[i+1]; c++ {
				set[c] = true
			}
		}
		return set
	}
	printable, unassigned := inRanges(python.Printable), inRanges(python.Unassigned)
	if len(printable) < 100_000 {
		t.Errorf("%d printable characters are recorded, want at least 100,000", len(printable))
	}
	for c := rune(0); c <= unicode.MaxRune; c++ {
		if !utf8.ValidRune(c) || unassigned[c] && unicode.IsPrint(c) {
			continue
		}
		quoted := codalab.PythonRepr(string(c))
		if got := strings.ContainsRune(quoted, c) || c == '\\'; got != printable[c] {
			t.Errorf("%U is printable: %v in %s, %v in Python with Unicode %s", c, got, quoted, printable[c], python.Unicode)
		}
	}
}

// TestTextsOfGoValues covers the types that no recorded JSON gives.
func TestTextsOfGoValues(t *testing.T) {
	t.Parallel()
	for want, value := range map[string]any{
		"4":          4.0,
		"4.5":        4.5,
		"1e+16":      1e16,
		"0":          math.Copysign(0, -1),
		"4.0":        codalab.PythonFloat(4),
		"7":          7,
		"-8":         int64(-8),
		"['a', 'b']": []string{"a", "b"},
		"{'k': [1]}": codalab.Metadata{"k": []any{1.0}},
	} {
		if got := codalab.PythonStr(value); got != want {
			t.Errorf("PythonStr(%#v) = %s, want %s", value, got, want)
		}
	}
	data, err := json.Marshal([]codalab.PythonFloat{2, 1e-5, codalab.PythonFloat(math.NaN()), codalab.PythonFloat(math.Inf(-1))})
	if want := `[2.0,1e-05,"nan","-inf"]`; err != nil || string(data) != want {
		t.Errorf("floats in JSON: got %s, %v, want %s", data, err, want)
	}
}

// pythonLoop answers each line, a JSON value, with a line: the value's texts, and whether a character of
// the value is in no version of Unicode that this Python knows. Go's decoder replaces lone surrogates.
const pythonLoop = `
import json, re, sys, unicodedata
def normal(v):
    if isinstance(v, str):
        return re.sub('[\ud800-\udfff]', '\ufffd', v)
    if isinstance(v, list):
        return [normal(e) for e in v]
    if isinstance(v, dict):
        d = {normal(k): normal(e) for k, e in v.items()}
        return {k: d[k] for k in sorted(d)}
    return v
def strange(v):
    if isinstance(v, str):
        return any(unicodedata.category(c) == 'Cn' for c in v)
    if isinstance(v, list):
        return any(map(strange, v))
    if isinstance(v, dict):
        return any(map(strange, v)) or any(map(strange, v.values()))
    return False
for line in sys.stdin.buffer:
    v = normal(json.loads(line))
    print(json.dumps({'str': str(v), 'repr': repr(v), 'type': type(v).__name__, 'strange': strange(v)}), flush=True)
`

// startPython returns a function that asks a running Python for the texts of a value in JSON. False means
// that this Python does not know a character of the value.
func startPython(f *testing.F) func(*testing.T, []byte) (pythonTexts, bool) {
	f.Helper()
	program, err := exec.LookPath("python3")
	if err != nil {
		f.Skip("no python3 to compare with: ", err)
	}
	python := exec.CommandContext(f.Context(), program, "-c", pythonLoop)
	python.Stderr = os.Stderr
	in, err := python.StdinPipe()
	if err != nil {
		f.Fatal(err)
	}
	out, err := python.StdoutPipe()
	if err != nil {
		f.Fatal(err)
	}
	if err := python.Start(); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := in.Close(); err != nil {
			f.Error(err)
		}
		_ = python.Wait() // its context may have ended it before
	})
	answers := bufio.NewReader(out)
	return func(t *testing.T, value []byte) (pythonTexts, bool) {
		t.Helper()
		var compact bytes.Buffer // one line
		if err := json.Compact(&compact, value); err != nil {
			t.Fatal(err)
		}
		compact.WriteByte('\n')
		if _, err := in.Write(compact.Bytes()); err != nil {
			t.Fatal(err)
		}
		line, err := answers.ReadBytes('\n')
		if err != nil {
			t.Fatalf("Python does not answer: %v", err)
		}
		var answer struct {
			pythonTexts
			Strange bool `json:"strange"`
		}
		if err := json.Unmarshal(line, &answer); err != nil {
			t.Fatal(err)
		}
		return answer.pythonTexts, !answer.Strange
	}
}

func FuzzTextsOfValuesArePythons(f *testing.F) {
	ask := startPython(f)
	for _, seed := range []string{
		`null`, `[1, 1.0, 1e-5, 1e16, -0.0, -0]`, `{"b": {"a": null}, "'": "\""}`, `"\u0000\r\n\t\\'\ud800 \u00a0 😀"`, `1e999`, `123456789012345678901`,
		`["\u0085", true, false, {}, [[]]]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		// Python has bounds for the depth of JSON and for the digits of an int.
		if len(data) > 500 || !utf8.Valid(data) {
			t.Skip("too long, or not UTF-8")
		}
		value, err := codalab.DecodeExact(data)
		if err != nil {
			t.Skip("not JSON")
		}
		want, known := ask(t, data)
		if !known {
			t.Skip("a character that this Python does not know")
		}
		if diff := cmp.Diff(want, textsOf(value)); diff != "" {
			t.Errorf("%s: texts differ from Python's (-Python +here):\n%s", data, diff)
		}
	})
}
