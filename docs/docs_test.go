// Package docs_test compares the documents with the code that they describe.
package docs_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/bridge/sim"
)

const root = ".."

// documents returns the texts by their paths from the root.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		names, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			texts[strings.TrimPrefix(name, root+"/")] = read(t, name)
		}
	}
	return texts
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	odd     = regexp.MustCompile(`[^\w\- ]`)
)

// anchors returns the fragments by which links name a text's headings.
func anchors(text string) []string {
	var found []string
	for _, h := range heading.FindAllStringSubmatch(text, -1) {
		found = append(found, anchor(h[1]))
	}
	return found
}

// anchor returns the fragment of a heading, as GitHub and GitLab make it.
func anchor(heading string) string {
	return strings.ReplaceAll(odd.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	for name, text := range documents(t) {
		for _, l := range link.FindAllStringSubmatch(text, -1) {
			path, fragment, _ := strings.Cut(l[1], "#")
			if strings.Contains(path, "://") {
				continue
			}
			target := filepath.Join(root, filepath.Dir(name), path)
			if path == "" {
				target = filepath.Join(root, name)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", name, l[1], err)
				continue
			}
			if fragment != "" && !slices.Contains(anchors(read(t, target)), fragment) {
				t.Errorf("%s links to %s, and %s has no such heading", name, l[1], target)
			}
		}
	}
}

// foreign are pages of other projects that comments cite.
var foreign = []string{"docs/spec/auth/token.md", "docs/attestations/attestation-storage.md", "docs/Worker-Managers.md"}

// TestPagesThatCodeNamesExist reads comments and messages: a page may be followed by a comma and the
// heading of a section, to the end of the string.
func TestPagesThatCodeNamesExist(t *testing.T) {
	t.Parallel()
	page := regexp.MustCompile(`\b(docs/[\w/-]+\.md)(?:, ([A-Z][\w ]+)")?`)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		for _, named := range page.FindAllStringSubmatch(read(t, path), -1) {
			if slices.Contains(foreign, named[1]) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(root, named[1]))
			if err != nil {
				t.Errorf("%s names %s: %v", path, named[1], err)
			} else if named[2] != "" && !slices.Contains(anchors(string(text)), anchor(named[2])) {
				t.Errorf("%s names %s, which has no heading %q", path, named[1], named[2])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// tests returns the names of all tests and fuzz targets by their package's path.
func tests(t *testing.T) map[string][]string {
	t.Helper()
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	found := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		in := strings.TrimPrefix(filepath.Dir(path), root+"/")
		for _, name := range declared.FindAllStringSubmatch(read(t, path), -1) {
			found[in] = append(found[in], name[1])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A test is named alone, or after its package and a colon; an ellipsis stands
// for a part of its name.
func TestTestsThatAreNamedExist(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile(`(?:([a-z/-]+): )?\b((?:Test|Fuzz)[A-Z…][\w…]*)`)
	there := tests(t)
	for name, text := range documents(t) {
		for _, n := range named.FindAllStringSubmatch(text, -1) {
			match := regexp.MustCompile("^" + strings.ReplaceAll(n[2], "…", `\w*`) + "$").MatchString
			found := false
			for in, names := range there {
				ours := n[1] == "" || in == n[1] || strings.HasSuffix(in, "/"+n[1])
				found = found || ours && slices.ContainsFunc(names, match)
			}
			if !found && n[2] != "TestX" && n[2] != "TestMain" { // any test, and none
				t.Errorf("%s names %s, which does not exist", name, n[0])
			}
		}
	}
}

func TestTargetsThatAreNamedExist(t *testing.T) {
	t.Parallel()
	makefile := read(t, filepath.Join(root, "Makefile"))
	named := regexp.MustCompile("(?m)(?:^|`)make ([a-z][a-z-]*)")
	for name, text := range documents(t) {
		for _, n := range named.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(makefile, "\n"+n[1]+":") {
				t.Errorf("%s names make %s, which does not exist", name, n[1])
			}
		}
	}
}

// TestDependenciesAreListed compares the table of docs/contributors.md with go.mod. A row of a nested
// module ends in "alone".
func TestDependenciesAreListed(t *testing.T) {
	t.Parallel()
	_, table, _ := strings.Cut(read(t, "contributors.md"), "| module | for |")
	var listed []string
	for _, row := range regexp.MustCompile(`(?m)^\| ((?:Azure/)?[a-z][^|]*) \|`).FindAllStringSubmatch(table, -1) {
		if !strings.HasSuffix(row[1], " alone") {
			listed = append(listed, strings.Split(row[1], ", ")...)
		}
	}
	var required []string
	for _, module := range regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(read(t, filepath.Join(root, "go.mod")), -1) {
		required = append(required, strings.TrimPrefix(module[1], "github.com/"))
	}
	slices.Sort(listed)
	slices.Sort(required)
	if diff := cmp.Diff(required, listed); diff != "" {
		t.Errorf("modules of go.mod (-) and of the table (+):\n%s", diff)
	}
}

// TestReadmeBeginsWithCommandsThatRun: the first command is near the top, and continuous integration
// runs the tests by the command that the README shows.
func TestReadmeBeginsWithCommandsThatRun(t *testing.T) {
	t.Parallel()
	first := strings.Split(read(t, filepath.Join(root, "README.md")), "\n")[:20]
	start := slices.Index(first, "```")
	if start < 0 {
		t.Fatal("the first 20 lines of README.md have no command")
	}
	tests := slices.ContainsFunc(first[start:], regexp.MustCompile(`^make test\b`).MatchString)
	if ci := regexp.MustCompile(`(?m)^\s*make (.* )?test\b`); !tests || !ci.MatchString(read(t, filepath.Join(root, ".ci", "run"))) {
		t.Errorf("README.md shows make test: %t; .ci/run has to run the same", tests)
	}
}

// TestFirstBundleHasOneSetOfSteps: README.md and the operators' first page lead to the first bundle by the same
// commands. README.md builds the programs first.
func TestFirstBundleHasOneSetOfSteps(t *testing.T) {
	t.Parallel()
	block := func(text, heading string) string {
		_, section, _ := strings.Cut(text, "\n## "+heading+"\n")
		_, rest, _ := strings.Cut(section, "\n```\n")
		steps, _, _ := strings.Cut(rest, "\n```\n")
		return steps
	}
	ours := block(read(t, filepath.Join(root, "README.md")), "Five minutes on your own cluster")
	build, after, _ := strings.Cut(ours, "\n")
	if !strings.HasPrefix(build, "$ make build ") {
		t.Errorf("README.md begins with %q, want make build", build)
	}
	if diff := cmp.Diff(block(read(t, filepath.Join("operators", "start.md")), "From install to the first bundle"), after); diff != "" {
		t.Errorf("docs/operators/start.md (-) and README.md (+) differ:\n%s", diff)
	}
}

// TestReliabilityIsComplete: each promise has its section, and each kind of
// fault and each kind of broken promise that the simulation knows is named.
func TestReliabilityIsComplete(t *testing.T) {
	t.Parallel()
	text := read(t, filepath.Join("contributors", "reliability.md"))
	for _, section := range strings.Split(text, "\n## ")[1:] {
		title, _, _ := strings.Cut(section, "\n")
		if !regexp.MustCompile(`^I\d+: `).MatchString(title) {
			continue
		}
		for _, part := range []string{"- **Leans on** ", "- **Kept in** ", "- **Tests** ", "- **Simulation** ", "- **Not promised**"} {
			if !strings.Contains(section, part) {
				t.Errorf("%s has no %s", title, part)
			}
		}
	}
	for n := 1; n <= 11; n++ {
		if !strings.Contains(text, fmt.Sprintf("\n## I%d: ", n)) {
			t.Errorf("there is no section of I%d", n)
		}
	}
	for _, k := range sim.Kinds() {
		if !strings.Contains(text, "`"+k.String()+"`") {
			t.Errorf("the kind of fault %s is not named", k)
		}
	}
	for _, b := range sim.AllBroken() {
		if !strings.Contains(text, "`"+string(b)+"`") {
			t.Errorf("what the simulation looks for, %s, is not named", b)
		}
	}
	suite := read(t, filepath.Join(root, "bridge", "ledger", "suite_test.go"))
	for _, name := range regexp.MustCompile("`([A-Z][a-z]+[A-Z]\\w+)`").FindAllStringSubmatch(text, -1) {
		if !strings.HasPrefix(name[1], "Test") && name[1] != "MinJobAge" && !strings.Contains(suite, `"`+name[1]+`"`) {
			t.Errorf("%s is not a test of the ledger", name[1])
		}
	}
}

// TestRunbookQuotesTheProgram looks in the code for each message of the runbook. An ellipsis
// stands for the parts that differ.
func TestRunbookQuotesTheProgram(t *testing.T) {
	t.Parallel()
	var code strings.Builder
	for _, dir := range []string{"bridge", "cmd", "staging", "worker", "server", "spool", "internal", "apptainer", "sbatch"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
				code.WriteString(read(t, path))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for line := range strings.Lines(read(t, "runbook.md")) {
		row := regexp.MustCompile("^\\| `([^`]{12,})`").FindStringSubmatch(line)
		if row == nil {
			continue
		}
		for part := range strings.SplitSeq(row[1], "…") {
			// The text between two values is in one string of the code, except for its ends.
			part = strings.Trim(part, " (),:;\"")
			if len(part) > 8 && !strings.Contains(code.String(), part) {
				t.Errorf("the runbook has %q of %q, which no program says", part, row[1])
			}
		}
	}
}
