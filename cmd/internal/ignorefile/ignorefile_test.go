package ignorefile_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/cmd/internal/ignorefile"
)

// kept returns the files below dir that patterns in its .gitignore leave, among names.
func kept(patterns string, names []string) []string {
	rules := ignorefile.Parse(patterns)
	var left []string
next:
	for _, name := range names {
		parts := strings.Split(name, "/")
		for i := range parts {
			if rules.Of(strings.Join(parts[:i+1], "/"), i < len(parts)-1) == ignorefile.Ignored {
				continue next
			}
		}
		left = append(left, name)
	}
	return left
}

func TestPatternsMeanWhatTheManualSays(t *testing.T) {
	t.Parallel()
	names := []string{"a", "a.o", "b/a", "b/a.o", "b/c/a.o", "b/c/d", "#x", "!x", "x y", "x ", ".hid", "b/.hid"}
	for patterns, gone := range map[string][]string{
		"*.o":             {"a.o", "b/a.o", "b/c/a.o"},
		"/*.o\n":          {"a.o"},
		"b/*.o\r\n":       {"b/a.o"},
		"**/c/*":          {"b/c/a.o", "b/c/d"},
		"b/**":            {"b/a", "b/a.o", "b/c/a.o", "b/c/d", "b/.hid"},
		"a/":              nil,
		"c/":              {"b/c/a.o", "b/c/d"},
		"*.o\n!b/*.o":     {"a.o", "b/c/a.o"},
		"b\n!b/a":         {"b/a", "b/a.o", "b/c/a.o", "b/c/d", "b/.hid"}, // git does not look into b
		"b/*\n!b/c":       {"b/a", "b/a.o", "b/.hid"},
		"# a\n\\#x\n\\!x": {"#x", "!x"},
		"x\\ y":           {"x y"},
		"x\\ ":            {"x "},
		"x[!a]y":          {"x y"},
		".*":              {".hid", "b/.hid"},
		"?.[!x]":          {"a.o", "b/a.o", "b/c/a.o"},
		"[":               nil,
		"a**o":            {"a.o", "b/a.o", "b/c/a.o"},
	} {
		var want []string
		for _, name := range names {
			if !strings.Contains("\n"+strings.Join(gone, "\n")+"\n", "\n"+name+"\n") {
				want = append(want, name)
			}
		}
		if diff := cmp.Diff(want, kept(patterns, names)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", patterns, diff)
		}
	}
}

// undefined are patterns with ** in a name, which git's manual and git do not agree on.
var undefined = regexp.MustCompile(`[^/!]\*\*|\*\*[^/\n]`)

// TestPatternsMeanWhatTheyMeanToGit compares random patterns on a tree with git's answer.
func TestPatternsMeanWhatTheyMeanToGit(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git")
	}
	var names []string
	for _, dir := range []string{"", "a/", "b/", "a/a/", "a/b/", "b/a/b/", ".c/"} {
		for _, file := range []string{"x", "ax", "a.o", ".o", "x-y"} {
			names = append(names, dir+file)
		}
	}
	dir := t.TempDir()
	git := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, &stderr)
		}
		return string(out)
	}
	git("init", "-q")
	for _, name := range names {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"a", "b", "x", "*", "?", "**", "/", "/", ".o", "[!a]", "[a-c]", "!", "-", `\`, " ", "/**", "**/"}
	for range 600 {
		var patterns strings.Builder
		for range 1 + random.IntN(3) {
			for range 1 + random.IntN(5) {
				patterns.WriteString(pieces[random.IntN(len(pieces))])
			}
			patterns.WriteByte('\n')
		}
		if undefined.MatchString(patterns.String()) {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, ".git/info/exclude"), []byte(patterns.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, name := range kept(patterns.String(), names) {
			got[name] = true
		}
		want := map[string]bool{}
		for name := range strings.SplitSeq(git("ls-files", "-z", "--others", "--exclude-standard"), "\x00") {
			if name != "" {
				want[name] = true
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-git +ours):\n%s", patterns.String(), diff)
		}
	}
}
