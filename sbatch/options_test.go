package sbatch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// A program of Slurm refuses a call with an option that it does not know, and versions differ: 22.05 has
// squeue --array-unique, newer ones have not. The lists are testdata/record-options'.
func TestEachOptionIsKnownToAllVersions(t *testing.T) {
	t.Parallel()
	lists, err := filepath.Glob("testdata/*/options.txt")
	testenv.Must(t, err)
	if len(lists) < 3 {
		t.Fatalf("lists of options: %v", lists)
	}
	passed := optionsInSource(t)
	if !passed["squeue --local"] || !passed["sacct --allocations"] || !passed["sbatch --parsable"] || len(passed) < 30 {
		t.Errorf("the sources have %v", passed)
	}
	for _, list := range lists {
		content, err := os.ReadFile(list)
		testenv.Must(t, err)
		known := map[string]bool{}
		for one := range strings.Lines(string(content)) {
			known[strings.TrimSpace(one)] = true
		}
		for one := range passed {
			// The help of squeue names --jobs, and that of scontrol --clusters, without their last letter.
			if !known[one] && !known[strings.TrimSuffix(one, "s")] {
				t.Errorf("%s does not have %s", list, one)
			}
		}
	}
}

// optionsInSource returns the options that the package passes to programs, as "program --option": those in a list of
// arguments that has a program's name or is given to the Client's method of that name, and those of the file
// args.golden.
func optionsInSource(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("*.go")
	testenv.Must(t, err)
	all := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		testenv.Must(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			if program, arguments := calledProgram(n); program != "" {
				addOptions(all, program, arguments)
			}
			return true
		})
	}
	content, err := os.ReadFile("testdata/args.golden")
	testenv.Must(t, err)
	for one := range strings.Lines(string(content)) {
		if option, _, _ := strings.Cut(strings.TrimSpace(one), "="); strings.HasPrefix(option, "--") {
			all["sbatch "+option] = true
		}
	}
	return all
}

// calledProgram returns the program that a call or a list of arguments is for, and the arguments.
func calledProgram(n ast.Node) (program string, arguments []ast.Expr) {
	switch n := n.(type) {
	case *ast.CallExpr:
		arguments = n.Args
		if method, ok := n.Fun.(*ast.SelectorExpr); ok && isProgram(method.Sel.Name) {
			return method.Sel.Name, arguments
		}
	case *ast.CompositeLit:
		arguments = n.Elts
	}
	for _, a := range arguments {
		if text, ok := stringIn(a); ok && isProgram(text) {
			return text, arguments
		}
	}
	return "", nil
}

func isProgram(name string) bool {
	return slices.Contains([]string{"sacct", "sacctmgr", "sbatch", "scancel", "scontrol", "sinfo", "squeue"}, name)
}

// addOptions adds the options among the arguments.
func addOptions(to map[string]bool, program string, arguments []ast.Expr) {
	for _, a := range arguments {
		ast.Inspect(a, func(n ast.Node) bool {
			e, ok := n.(ast.Expr)
			if !ok {
				return true
			}
			if text, ok := stringIn(e); ok && strings.HasPrefix(text, "--") {
				option, _, _ := strings.Cut(text, "=")
				to[program+" "+option] = true
			}
			return true
		})
	}
}

func stringIn(e ast.Expr) (string, bool) {
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(literal.Value)
	return text, err == nil
}
