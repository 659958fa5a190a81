package plan_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// sentences are the package's reasons and messages, by the regular expression of each.
type sentences []said

type said struct {
	match *regexp.Regexp
	// parts are the fixed parts, between the variable ones.
	parts []string
}

// source parses the package, without its tests.
var source = sync.OnceValues(func() ([]*ast.File, error) {
	names, err := filepath.Glob("*.go")
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
})

// known finds every string of more than a word in the source, with its formatting verbs and additions.
var known = sync.OnceValue(func() sentences {
	files, err := source()
	if err != nil {
		panic(err)
	}
	var found sentences
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			expr, ok := n.(ast.Expr)
			if !ok {
				return true
			}
			parts := partsOf(expr)
			if len(parts) == 0 || !strings.Contains(strings.TrimSpace(strings.Join(parts, "")), " ") {
				return true
			}
			found = append(found, newSaid(parts))
			_, sum := expr.(*ast.BinaryExpr)
			return !sum
		})
	}
	slices.SortStableFunc(found, func(a, b said) int { return b.weight() - a.weight() })
	return found
})

func newSaid(parts []string) said {
	quoted := make([]string, len(parts))
	for i, p := range parts {
		quoted[i] = regexp.QuoteMeta(p)
	}
	return said{regexp.MustCompile(`(?s)^` + strings.Join(quoted, "(.*)") + `$`), parts}
}

func (s said) weight() int { return len(strings.Join(s.parts, "")) }

var verb = regexp.MustCompile(`%[a-z]`)

// partsOf returns the fixed parts of a string's expression; none if it has none.
func partsOf(expr ast.Expr) []string {
	switch e := expr.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return verb.Split(text, -1)
		}
	case *ast.BinaryExpr:
		if e.Op != token.ADD {
			return nil
		}
		left, right := partsOf(e.X), partsOf(e.Y)
		switch {
		case left == nil && right == nil:
			return nil
		case left == nil:
			return append([]string{""}, right...)
		case right == nil:
			return append(left, "")
		}
		last := len(left) - 1
		return slices.Concat(left[:last], []string{left[last] + right[0]}, right[1:])
	}
	return nil
}

// fixed returns a reason with an ellipsis for each variable part.
func (s sentences) fixed(reason string) string {
	for _, one := range s {
		groups := one.match.FindStringSubmatch(reason)
		if groups == nil {
			continue
		}
		text := one.parts[0]
		for i, part := range one.parts[1:] {
			if between := groups[i+1]; s.constant(between) {
				text += between + part
			} else {
				text += "…" + part
			}
		}
		return text
	}
	return reason
}

// constant reports whether a text is a whole sentence of the source.
func (s sentences) constant(text string) bool {
	return slices.ContainsFunc(s, func(one said) bool { return len(one.parts) == 1 && one.parts[0] == text })
}

func TestReasonsAreOfTheSource(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]string{
		"job 7: sbatch accepted it":                                        "job …: sbatch accepted it",
		"try 3 failed: no route to host":                                   "try … failed: …",
		"attempt 1 goes to Slurm":                                          "attempt … goes to Slurm",
		"sbatch gave no clear answer (x): looking for the job by its name": "sbatch gave no clear answer (…): looking for the job by its name",
		"the attempt ended: platform":                                      "the attempt ended: …",
	} {
		if got := known().fixed(reason); got != want {
			t.Errorf("%q has the fixed part %q, want %q", reason, got, want)
		}
	}
}
