package compare_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/cmd/internal/compare"
	"github.com/cl-slurm/cl-slurm/codalab"
)

func file(name string, size int64, perm int) codalab.TargetInfo {
	return codalab.TargetInfo{Name: name, Type: codalab.TargetFile, Size: size, Perm: perm}
}

func dir(name string, entries ...codalab.TargetInfo) codalab.TargetInfo {
	if entries == nil {
		entries = []codalab.TargetInfo{}
	}
	return codalab.TargetInfo{Name: name, Type: codalab.TargetDirectory, Contents: entries, Perm: 0o755}
}

func link(name, to string) codalab.TargetInfo {
	return codalab.TargetInfo{Name: name, Type: codalab.TargetLink, Link: to, Perm: 0o777}
}

// describe is a tree's difference as text.
func describe(t compare.Tree) string {
	var out []string
	side := func(e *compare.Entry) string {
		if e == nil {
			return "none"
		}
		return strings.TrimSpace(fmt.Sprintf("%s %d %s", e.Type, e.Size, e.Link))
	}
	for _, p := range t.Differ {
		out = append(out, fmt.Sprintf("%s: %s, %s", p.Path, side(p.A), side(p.B)))
	}
	for _, p := range t.Open {
		out = append(out, "open "+p.Path)
	}
	for _, at := range t.Deep {
		out = append(out, "deep "+at)
	}
	return strings.Join(append(out, fmt.Sprintf("same %d", t.Same)), "; ")
}

func TestTreesDifferByWhatIsKnownWithoutTheirContents(t *testing.T) {
	t.Parallel()
	one := file("f", 3, 0o644)
	unlisted := dir("d")
	unlisted.Contents = nil
	for name, test := range map[string]struct {
		a, b *codalab.TargetInfo
		want string
	}{
		"nothing at all":                    {nil, nil, "same 0"},
		"contents that have not come":       {nil, &one, ": none, file 3; same 0"},
		"files of one size":                 {new(file("f", 3, 0o600)), &one, "open ; same 0"},
		"files of two sizes":                {new(file("f", 4, 0o600)), &one, ": file 4, file 3; same 0"},
		"a program and a text":              {new(file("f", 3, 0o755)), &one, ": file 3, file 3; same 0"},
		"a file and a directory":            {&one, new(dir("f")), ": file 3, directory 0; same 0"},
		"empty files":                       {new(file("f", 0, 0o600)), new(file("f", 0, 0o644)), "same 1"},
		"links":                             {new(dir("", link("l", "x"), link("m", "x"))), new(dir("", link("l", "x"), link("m", "y"))), "m: link 0 x, link 0 y; same 1"},
		"any order":                         {new(dir("", file("b", 1, 0), file("a", 2, 0))), new(dir("", file("a", 2, 0), file("c", 3, 0))), "b: file 1, none; c: none, file 3; open a; same 0"},
		"a directory on one side, summed":   {new(dir("", dir("d", file("x", 5, 0), dir("e", file("y", 6, 0))))), new(dir("")), "d: directory 11, none; same 0"},
		"directories below what was listed": {new(dir("", unlisted)), new(dir("", unlisted)), "deep d; same 0"},
	} {
		if got := describe(compare.Trees(test.a, test.b)); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

func TestValuesStandSideBySide(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)
	for name, test := range map[string]struct{ file, a, b, want string }{
		"JSON":               {"s.json", `{"acc": 0.8, "t": {"l": [1, 2]}, "same": 1}`, `{"acc": 0.9, "t": {"l": [1, 3]}, "same": 1.0}`, "acc 0.8 0.9; t/l/1 2 3"},
		"what one side has":  {"s.JSON", `{"a": 1}`, `{"b": null}`, "a 1 <nil>; b <nil> <none>"},
		"NaN":                {"s.json", `{"a": NaN, "b": NaN}`, `{"a": NaN, "b": 1}`, "b NaN 1"},
		"strings of numbers": {"s.json", `{"a": "1"}`, `{"a": 1}`, ""},
		"large numbers":      {"s.json", `{"id": 9007199254740993, "e": 1e16, "f": 9007199254740993.0}`, `{"id": 9007199254740992, "e": 10000000000000000, "f": 9007199254740992}`, "id 9007199254740993 9007199254740992"},
		"a number alone":     {"s.json", `1`, `2`, " 1 2"},
		"the last rows":      {"l.jsonl", "{\"a\": 1}\n{\"a\": 2}\n", "{\"a\": 1}\n{\"a\": 2}\n{\"a\": 3}\n", "-1:a 2 3; rows 2 3"},
		"a table":            {"l.csv", "s,a\n1,2\n", "s,a\n1,5\n", "-1:a 2 5"},
		"a row before":       {"l.csv", "s\n1\n2\n", "s\n9\n2\n", ""},
		"no JSON":            {"s.json", `{"a": 1`, `{"a": 2}`, "none"},
		"binary":             {"s.json", "\"\xff\"", `1`, "none"},
		"too deep":           {"s.json", deep, `1`, "none"},
		"no rows":            {"l.csv", "s\n", "s\n1\n", "none"},
		"another kind":       {"s.txt", `{"a": 1}`, `{"a": 2}`, "none"},
	} {
		values, ok := compare.Values(test.file, []byte(test.a), []byte(test.b))
		var out []string
		for _, v := range values {
			out = append(out, fmt.Sprint(v.Name, " ", v.A, " ", v.B))
		}
		got := strings.Join(out, "; ")
		if !ok {
			got = "none"
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	if n, ok := (compare.Value{A: "1", B: "0.5"}).Change(); n != -0.5 || !ok {
		t.Errorf("the change is %v, %v", n, ok)
	}
	for _, v := range []compare.Value{{A: "NaN", B: "0.5"}, {A: -1e308, B: 1e308}, {A: "x", B: 1.0}} {
		if n, ok := v.Change(); ok {
			t.Errorf("the change of %v is %v", v, n)
		}
	}
}

func TestTextsDifferAsDiffShowsThem(t *testing.T) {
	t.Parallel()
	got, err := compare.Text("a", "b", "1\n2\n3", "1\nx\n3\n")
	if diff := cmp.Diff("--- a\n+++ b\n@@ -1,3 +1,3 @@\n 1\n-2\n-3\n\\ No newline at end of file\n+x\n+3\n", got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if compare.IsText([]byte("a\x00b")) || compare.IsText([]byte("\xff")) || !compare.IsText([]byte("ü\r\n")) {
		t.Error("a text is not known from other bytes")
	}
}

// Whatever two files hold, no difference is missed, and each line that is shown is one of theirs.
func FuzzText(f *testing.F) {
	f.Add("1\n2\n", "1\n3")
	f.Add("", "x")
	f.Fuzz(func(t *testing.T, a, b string) {
		text, err := compare.Text("a", "b", a, b)
		if err != nil || (text == "") != (a == b) {
			t.Fatalf("%q: %v", text, err)
		}
		for i, line := range strings.Split(text, "\n") {
			if i < 2 {
				continue
			}
			if rest, ok := strings.CutPrefix(line, "-"); ok && !strings.Contains("\n"+a+"\n", "\n"+rest+"\n") {
				t.Errorf("%q is no line of %q", rest, a)
			}
			if rest, ok := strings.CutPrefix(line, "+"); ok && !strings.Contains("\n"+b+"\n", "\n"+rest+"\n") {
				t.Errorf("%q is no line of %q", rest, b)
			}
		}
		_, _ = compare.Values("x.json", []byte(a), []byte(b))
		_, _ = compare.Values("x.csv", []byte(a), []byte(b))
	})
}
