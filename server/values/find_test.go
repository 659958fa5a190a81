package values_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/server/values"
)

// found returns the values in files, as lines "path=text", with a # if it is a number.
func found(t *testing.T, files map[string]string) []string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		p := filepath.Join(dir, "contents", name)
		testenv.Must(t, os.MkdirAll(filepath.Dir(p), 0o755))
		testenv.Must(t, os.WriteFile(p, []byte(text), 0o600))
	}
	return foundIn(t, dir, "contents", "x")
}

func foundIn(t *testing.T, dir, at, name string) []string {
	t.Helper()
	root, err := os.OpenRoot(dir)
	testenv.Must(t, err)
	defer root.Close()
	list, err := values.Find(root, at, name)
	testenv.Must(t, err)
	return texts(list)
}

func texts(list []store.Value) []string {
	var all []string
	for _, v := range list {
		line := v.Path + "=" + v.Text
		if v.Number != nil {
			line += "#"
		}
		all = append(all, line)
	}
	return all
}

func TestValuesAreFoundInEachKindOfFile(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 70<<10)
	for name, test := range map[string]struct{ file, text, want string }{
		"JSON":                   {"stats.json", `{"acc": 0.5, "test": {"error": 1e-3, "deep": {"x": -7}}, "opt": "adam", "ok": true, "n": null, "list": [1]}`, "/stats.json:acc=0.5# /stats.json:ok=true /stats.json:opt=adam /stats.json:test/deep/x=-7# /stats.json:test/error=0.001#"},
		"Python's JSON":          {"a/stats.json", `{"acc": NaN, "loss": Infinity, "lr": -Infinity, "n": 3}`, "/a/stats.json:acc=NaN /a/stats.json:loss=Infinity /a/stats.json:lr=-Infinity /a/stats.json:n=3#"},
		"YAML":                   {"m.yaml", "acc: .5\nopt: adam\ntest:\n  lr: 1e-3\n  nan: .nan\n", "/m.yaml:acc=0.5# /m.yaml:opt=adam /m.yaml:test/lr=1e-3# /m.yaml:test/nan=nan"},
		"lines of tabs":          {"stats", "train/error\t0.25\nname\tbig\n", "/stats:name=big /stats:train/error=0.25#"},
		"JSON lines":             {"log.jsonl", "{\"loss\": 2}\n{\"loss\": 1.5, \"step\": 2}\n\n", "/log.jsonl:-1:loss=1.5# /log.jsonl:-1:step=2#"},
		"one line, no end":       {"log.jsonl", `{"loss": 2}`, "/log.jsonl:-1:loss=2#"},
		"a line cut by a crash":  {"log.jsonl", "{\"loss\": 2}\n{\"loss\": 1.", ""},
		"100 MB of lines":        {"log.jsonl", strings.Repeat("{\"loss\": 2}\n", 10_000) + "{\"loss\": 1}\n", "/log.jsonl:-1:loss=1#"},
		"a line that is long":    {"log.jsonl", `{"loss": "` + long + `"}`, ""},
		"a table":                {"log.csv", "step,loss,\"a name\"\r\n1,2,x\r\n2,1.5,\"y, z\"\r\n", "/log.csv:-1:a name=y, z /log.csv:-1:loss=1.5# /log.csv:-1:step=2#"},
		"a table without rows":   {"log.csv", "step,loss\n", ""},
		"a row that is short":    {"log.csv", "step,loss\n1\n", ""},
		"a header that is long":  {"log.csv", long + "\n1\n", ""},
		"no JSON":                {"stats.json", "{", ""},
		"a list":                 {"stats.json", "[1, 2]", ""},
		"a number":               {"stats.json", "7", ""},
		"nothing":                {"stats.json", "", ""},
		"binary":                 {"stats.json", "\xff\xfe{}", ""},
		"null characters":        {"stats.json", `{"a\u0000b": 1, "c": "\u0000"}`, ""},
		"deep JSON":              {"stats.json", strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000), ""},
		"deep lists":             {"stats.json", strings.Repeat(`[`, 100_000), ""},
		"a large file":           {"stats.json", `{"acc": 1, "x": "` + strings.Repeat(long, 4) + `"}`, ""},
		"a long text":            {"stats.json", `{"acc": 1, "x": "` + long[:201] + `", "` + long[:300] + `": 1}`, "/stats.json:acc=1#"},
		"YAML's aliases":         {"m.yaml", "a: &a [x, x]\nb: &b [*a, *a, *a, *a]\nc: &c {d: *b}\n", ""},
		"another kind":           {"stats.txt", "acc: 1", ""},
		"too deep a directory":   {"a/b/c/stats.json", `{"acc": 1}`, ""},
		"a hidden directory":     {".git/stats.json", `{"acc": 1}`, ""},
		"a key with a colon":     {"stats.json", `{"a:b": 1, "": 2}`, "/stats.json:=2# /stats.json:a:b=1#"},
		"an unknown tag of YAML": {"m.yaml", "!!python/object/apply:os.system [id]", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := strings.Join(found(t, map[string]string{test.file: test.text}), " "); got != test.want {
				t.Errorf("%.500s\nwant %s", got, test.want)
			}
		})
	}
}

func TestValuesOfOneBundleAreBounded(t *testing.T) {
	t.Parallel()
	files := map[string]string{}
	for i := range 100 {
		files[fmt.Sprintf("s%03d.json", i)] = `{"a": 1}`
	}
	if n := len(found(t, files)); n != 64 {
		t.Errorf("values of %d files", n)
	}
	var many strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&many, "k%d: %d\n", i, i)
	}
	if n := len(found(t, map[string]string{"m.yaml": many.String()})); n != 1000 {
		t.Errorf("%d values of a file", n)
	}
	clear(files)
	for i := range 64 {
		files[fmt.Sprintf("s%03d.json", i)] = `{"a": "` + strings.Repeat("x", 100<<10) + `", "b": 1}`
	}
	if n := len(found(t, files)); n != 10 {
		t.Errorf("values of %d large files", n)
	}
}

// A link leads to a file that its owner may not read by the server, and a pipe has no end.
func TestNothingButFilesHasValues(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testenv.Must(t, os.Mkdir(filepath.Join(dir, "contents"), 0o755))
	testenv.Must(t, os.WriteFile(filepath.Join(dir, "secret.json"), []byte(`{"acc": 1}`), 0o600))
	testenv.Must(t, os.WriteFile(filepath.Join(dir, "contents", "real.json"), []byte(`{"acc": 1}`), 0o600))
	testenv.Must(t, os.Symlink("../secret.json", filepath.Join(dir, "contents", "out.json")))
	testenv.Must(t, os.Symlink("real.json", filepath.Join(dir, "contents", "in.json")))
	testenv.Must(t, os.Symlink("..", filepath.Join(dir, "contents", "up")))
	testenv.Must(t, syscall.Mkfifo(filepath.Join(dir, "contents", "pipe.json"), 0o600))
	testenv.Must(t, os.Mkdir(filepath.Join(dir, "contents", "dir.json"), 0o700))
	if got := strings.Join(foundIn(t, dir, "contents", ""), " "); got != "/real.json:acc=1#" {
		t.Error(got)
	}
	if got := foundIn(t, dir, "nothing", ""); len(got) > 0 {
		t.Error(got)
	}
	if got := strings.Join(foundIn(t, dir, "secret.json", "stats.json"), " "); got != "/:acc=1#" {
		t.Errorf("contents that are one file: %s", got)
	}
}

func FuzzFind(f *testing.F) {
	f.Add("log.csv", "a,b\n1,2\n")
	f.Add("log.jsonl", "{\"a\": NaN}\n")
	f.Add("m.yaml", "a: &a {b: *a}\n")
	f.Add("stats", "a\tb\n")
	f.Fuzz(func(t *testing.T, name, text string) {
		if strings.ContainsAny(name, "/\x00") || name == "" || name == "." || name == ".." || len(name) > 200 {
			t.Skip()
		}
		for _, line := range found(t, map[string]string{name: text}) {
			if len(line) > 600 || strings.Contains(line, "\x00") {
				t.Errorf("%.700q", line)
			}
		}
	})
}
