package interpret

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
)

var errDisk = errors.New("disk on fire")

func TestFailedReadIsLoggedAndNotShown(t *testing.T) {
	t.Parallel()
	in, w := smallSite()
	var log bytes.Buffer
	in.Log = slog.New(slog.NewTextHandler(&log, nil))
	in.Read = func(context.Context, string, string, int64) ([]byte, error) { return nil, errDisk }
	for _, display := range []string{"contents /f", "image /f", "graph /f", "table /f", "record /f"} {
		log.Reset()
		answer := answerOf(t, in, w, "% display "+display, "{b1}")
		wantText(t, answer, "ERROR: Unexpected error interpreting item")
		wantText(t, log.String(), "disk on fire")
		if strings.Contains(answer, "fire") {
			t.Errorf("%s: the answer shows the cause", display)
		}
	}
	if _, err := in.FileGenpaths(t.Context(), []codalab.FileQuery{{Genpath: "/f"}}); !errors.Is(err, errDisk) {
		t.Errorf("FileGenpaths: %v", err)
	}
}

func TestForbiddenFiles(t *testing.T) {
	t.Parallel()
	in, w := smallSite()
	in.Read = func(context.Context, string, string, int64) ([]byte, error) { return nil, fs.ErrPermission }
	for _, display := range []string{"contents /f", "image /f", "graph /f"} {
		wantText(t, answerOf(t, in, w, "% display "+display, "{b1}"), "sufficient permissions")
	}
	wantText(t, answerOf(t, in, w, "% display table /f", "{b1}"), `"f":["Forbidden"]`)
}

func TestSearchErrors(t *testing.T) {
	t.Parallel()
	in, w := smallSite()
	in.SearchBundles = func(context.Context, []string) (BundleSearch, error) {
		return BundleSearch{}, &UsageError{"Unknown key: x"}
	}
	wantText(t, answerOf(t, in, w, "% search x=y"), "ERROR: Unknown key: x")
	in.SearchWorksheets = func(context.Context, []string) ([]WorksheetInfo, error) { return nil, errDisk }
	w.Items = []Item{{Type: codalab.ItemDirective, Value: "wsearch x"}}
	if _, err := in.Worksheet(t.Context(), w, Options{}); !errors.Is(err, errDisk) {
		t.Errorf("error %v, want that of the search", err)
	}
}

// CodaLab's own server fails as a whole for these worksheets, or calls the error unexpected.
func TestMistakesAreTold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ lines, want string }{
		{"% schema s\n% addschema nope", "Error in source line 2: unknown schema `nope`"},
		{"% display\n{b1}", "Unexpected error while parsing line 2"},
		{"% display record owner\n{b1}", `"key":"owner:","value":"me"`},
		{"% schema s\n% add z /f:y/7\n% add y /f:y/1\n% display table s\n{b1}", `{"y":"b","z":null}`},
	} {
		in, w := smallSite()
		answer := answerOf(t, in, w, strings.Split(c.lines, "\n")...)
		wantText(t, answer, c.want)
	}
	in, w := smallSite()
	w.Items = []Item{{Type: codalab.ItemDirective, Value: "add 'open"}, {Type: "odd"}}
	got, err := in.Worksheet(t.Context(), w, Options{})
	if err != nil {
		t.Fatal(err)
	}
	data, _ := json.Marshal(got)
	wantText(t, string(data), "Error in source line 1: No closing quotation")
	wantText(t, string(data), "unknown type of item")
	wantText(t, string(data), `"source":["% add 'open",""]`)
}

func TestParseFormErrors(t *testing.T) {
	t.Parallel()
	resolve := stockResolver()
	var mistake *UsageError
	_, err := ParseForm([]string{"ok", "% it's"}, resolve)
	if !errors.As(err, &mistake) || mistake.Message != "Error in source line 2: No closing quotation" {
		t.Errorf("open quotation: %v", err)
	}
	if _, err := ParseForm([]string{"{nope}"}, resolve); !errors.As(err, &mistake) {
		t.Errorf("unknown bundle: %v", err)
	}
	resolve.Worksheet = func(string) (string, error) { return "", errDisk }
	if _, err := ParseForm([]string{"{{w1}}"}, resolve); !errors.Is(err, errDisk) {
		t.Errorf("failed look-up: %v", err)
	}
}

func TestLinesDescribeBundles(t *testing.T) {
	t.Parallel()
	b := Bundle{Bundle: codalab.Bundle{
		UUID: "0x1", Type: "run", Command: ref("a\nb"), Metadata: map[string]any{"name": "r"},
		Dependencies: []codalab.Dependency{{ChildPath: "k", ParentName: "p", ParentPath: "q", ParentUUID: "0x2"}, {ChildPath: "z", ParentName: "z", ParentUUID: "0x3"}},
	}}
	items := []Item{
		{Type: codalab.ItemBundle, BundleUUID: "0x1"},
		{Type: codalab.ItemBundle, BundleUUID: "0x4"},
		{Type: codalab.ItemWorksheet, SubworksheetUUID: "0x5"},
		{Type: codalab.ItemWorksheet, SubworksheetUUID: "0x6"},
		{Type: codalab.ItemDirective, Value: "% ' c'"},
		{Type: codalab.ItemDirective},
	}
	got := Lines(items, map[string]Bundle{"0x1": b}, map[string]WorksheetInfo{"0x5": {Worksheet: codalab.Worksheet{WorksheetName: codalab.WorksheetName{Name: "w"}}}})
	want := []string{"[run r -- k:p/q,:z : a b]{0x1}", "[]{0x4}", "[worksheet w]{{0x5}}", "[worksheet ]{{0x6}}", "// c", "%"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTableContents(t *testing.T) {
	t.Parallel()
	in, _ := smallSite()
	var rows []map[string]json.RawMessage
	decode(t, []byte(`[{"a": ["0x1", "/f:x", "%.1f"], "b": 3.0, "c": ["x"], "d": ["0x1", "/f:y", null], "e": null}]`), &rows)
	got, err := in.TableContents(t.Context(), rows)
	if err != nil {
		t.Fatal(err)
	}
	data, _ := json.Marshal(got)
	if want := `[{"a":"1.0","b":3.0,"c":["x"],"d":["a","b"],"e":null}]`; string(data) != want {
		t.Errorf("got %s, want %s", data, want)
	}
	for _, cell := range []string{`[1, "/f", null]`, `["0x1", "f", null]`, `["0x1", "/f", 5]`} {
		decode(t, []byte(`[{"a": `+cell+`}]`), &rows)
		var mistake *UsageError
		if _, err := in.TableContents(t.Context(), rows); !errors.As(err, &mistake) {
			t.Errorf("%s: error %v, want a *UsageError", cell, err)
		}
	}
}

func TestMetadataTypes(t *testing.T) {
	t.Parallel()
	b := Bundle{Bundle: codalab.Bundle{Type: "run", Metadata: map[string]any{"time": float64(4), "created": float64(4), "exitcode": int64(3), "tags": []string{"a"}}}}
	e := entry{bundle: &b}
	for genpath, want := range map[string]any{"time": codalab.PythonFloat(4), "created": json.Number("4"), "exitcode": json.Number("3"), "tags": []any{"a"}, "none": nil} {
		if diff := cmp.Diff(want, e.value(genpath)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", genpath, diff)
		}
	}
}

func TestPostFunctionsOfTheNumberThatASearchGives(t *testing.T) {
	t.Parallel()
	total := codalab.PythonFloat(12387)
	for spec, want := range map[string]any{
		"str": "12387.0", "size": "12.1k", "duration": "3h26m", "date": "1970-01-01 03:26:27",
		"%.2f": "12387.00", "%d MB": "12387 MB", "%08.1f%%": "012387.0%", "size | [0:2]": "12", "size | [-1:]": "k", "[0:2]": total,
		"size | s/k/ KiB": "12.1 KiB", "size | s/(/x": "12.1k", "s/1/2": total, "nosuch": "<invalid function: nosuch>", "size | s/a/b/": "<invalid regex: s/a/b/>",
		"size | [x:y]": "12.1k", "%s": "12387.0", "%*d": total, "%.999999999f": total, "%d%d": total, "key bytes": map[string]any{"bytes": total},
		"size | size": "12.1k", `str | s/\//x`: "12387.0", "key b | key a | str": "{'a': {'b': 12387.0}}",
	} {
		if diff := cmp.Diff(want, ApplyPost(spec, total)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", spec, diff)
		}
	}
	if got := ApplyPost("size", json.Number("12")); got != "12 bytes" {
		t.Error(got)
	}
	bomb := "str" + strings.Repeat(" | s/./"+strings.Repeat("x", 99), maxSteps-1)
	if got, ok := ApplyPost(bomb, total).(string); !ok || len(got) > maxText {
		t.Errorf("%d bytes", len(got))
	}
}
