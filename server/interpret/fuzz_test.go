package interpret

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// FuzzParseForm guards two promises: no lines make ParseForm panic, and items that are written as lines
// and read again stay the same.
func FuzzParseForm(f *testing.F) {
	for _, line := range []string{
		"# Title", "// comment", "%% comment", "% display table 'a b'", "[run x]{b1}", "{{w1}}", "{{nope}}", "% \"open", "",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, text string) {
		items, err := ParseForm(strings.Split(text, "\n"), stockResolver())
		if err != nil {
			return
		}
		lines := Lines(items, nil, nil)
		again, err := ParseForm(lines, Resolver{Bundle: same, Worksheet: same})
		if err != nil {
			t.Fatalf("%q: %v", lines, err)
		}
		for i := range items {
			if strings.ContainsAny(lines[i], "\r") || items[i].Type == codalab.ItemMarkup {
				continue // refused references stay references in their lines
			}
			if diff := cmp.Diff(Lines(items[i:i+1], nil, nil), Lines(again[i:i+1], nil, nil)); diff != "" {
				t.Errorf("%q (-first +second):\n%s", lines[i], diff)
			}
		}
	})
}

func same(spec string) (string, error) { return spec, nil }

// FuzzWorksheet guards that every worksheet has an answer in JSON.
func FuzzWorksheet(f *testing.F) {
	for _, text := range []string{
		"a\n\nb\n{b1}\n{b2}\n{{w1}}", "% schema s\n% add a /f:x %.3f\n% addschema s\n% display table s\n{b1}",
		"% display contents /f maxlines=3\n{b1}", "% display image /f width=3\n{b1}", "% display graph /f xlabel=x\n{b1}\n{b8}",
		"% display record a:b:c:d\n{b1}", "% search x\n% wsearch y\n% search .count", "% '", "% display", "// x\n% odd",
	} {
		f.Add(text, false)
		f.Add(text, true)
	}
	f.Fuzz(func(t *testing.T, text string, brief bool) {
		items, err := ParseForm(strings.Split(text, "\n"), stockResolver())
		if err != nil {
			return
		}
		in, w := smallSite()
		for i, item := range items {
			item.ID, item.SortKey = ref(int64(i)), ref(int64(i))
			w.Items = append(w.Items, item)
		}
		for _, o := range []Options{{Brief: brief}, {Directive: "search x"}, {BundleUUIDs: []string{"0x00000000000000000000000000000001"}}} {
			got, err := in.Worksheet(t.Context(), w, o)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := json.Marshal(got); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// smallSite is a site with one bundle, each of whose files is a small YAML file.
func smallSite() (Interpreter, Worksheet) {
	b := Bundle{OwnerName: "me"}
	b.UUID, b.Type = "0x00000000000000000000000000000001", "dataset"
	b.Metadata = map[string]any{"name": "x", "created": float64(5), "tags": []string{"t"}}
	in := Interpreter{
		Read: func(context.Context, string, string, int64) ([]byte, error) { return []byte("x: 1\ny: [a, b]\n"), nil },
		SearchBundles: func(context.Context, []string) (BundleSearch, error) {
			return BundleSearch{Bundles: []Bundle{b}}, nil
		},
		SearchWorksheets: func(context.Context, []string) ([]WorksheetInfo, error) {
			return []WorksheetInfo{{Worksheet: codalab.Worksheet{WorksheetName: codalab.WorksheetName{UUID: "0x2", Name: "other"}}}}, nil
		},
		Log: slog.New(slog.DiscardHandler),
	}
	return in, Worksheet{WorksheetInfo: WorksheetInfo{Worksheet: codalab.Worksheet{WorksheetName: codalab.WorksheetName{UUID: "0x3"}}}, Bundles: map[string]Bundle{b.UUID: b}}
}

// FuzzPost guards that no post-function panics or makes a value that is much too large.
func FuzzPost(f *testing.F) {
	for _, spec := range []string{
		"size", "date", "duration", "%.3f | s/\\./,", "%-+05.3d%%", "[1:-2]", "s/(a)|b/\\1\\g<0>\\n", "str | key k | add l m", "key k | str | key k | str", "%s",
	} {
		f.Add(spec, `"banana"`)
		f.Add(spec, `[1, 2.5e300, null]`)
		f.Add(spec, `{"a": -12.5}`)
	}
	f.Fuzz(func(t *testing.T, spec, text string) {
		decoded, err := codalab.DecodeExact([]byte(text))
		if err != nil {
			return
		}
		value := normal(decoded)
		got := parsePost(spec).apply(value)
		if size(got) > max(2*maxText, size(value)) {
			t.Errorf("%q makes %d bytes", spec, size(got))
		}
		if _, err := json.Marshal(got); err != nil {
			t.Error(err)
		}
	})
}

// FuzzFile guards that every file has a value, whatever is in it.
func FuzzFile(f *testing.F) {
	f.Add([]byte("a\tb\n"), "a")
	f.Add([]byte(`{"a": [1, {"b": 2}]}`), "a/1/b")
	f.Add([]byte("a: &x [1, *x]\n<<: *x\n"), "a/0")
	f.Add([]byte("a: &x {b: 1}\nc:\n  <<: [*x]\n"), "c/b")
	f.Add([]byte("a\r\nb\xff\u2028"), "0")
	f.Fuzz(func(t *testing.T, data []byte, path string) {
		value := lookUp(parseFile(headLines(data, 64, 5)), path)
		if _, err := json.Marshal(value); err != nil {
			t.Error(err)
		}
	})
}
