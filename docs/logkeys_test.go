package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// logKeys are the keys of the programs' logs, with their types and a place of each.
type logKeys map[string]map[string]string

// sayType returns the type of a key's value in a JSON log, by the function of slog that makes the attribute.
func sayType(function, key string) string {
	switch function {
	case "String":
		return "text"
	case "Int", "Int64", "Uint64", "Float64":
		if key == "bytes" || strings.HasSuffix(key, "_bytes") {
			return "bytes"
		}
		return "number"
	case "Bool":
		return "true or false"
	case "Time":
		return "time"
	case "Duration":
		return "seconds"
	case "Any":
		if key == "error" {
			return "text"
		}
		return "list"
	}
	return ""
}

// add adds the attributes that a file makes, and returns its mistakes.
func (k logKeys) add(fset *token.FileSet, file *ast.File) (mistakes []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) < 2 {
			return true
		}
		function, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || fmt.Sprint(function.X) != "slog" {
			return true
		}
		place := fset.Position(call.Pos()).String()
		literal, ok := call.Args[0].(*ast.BasicLit)
		if !ok {
			if isKeyOf(call.Args[0]) {
				return true // an attribute that is made anew
			}
			if sayType(function.Sel.Name, "") != "" {
				mistakes = append(mistakes, place+": the key is no constant text")
			}
			return true
		}
		key, err := strconv.Unquote(literal.Value)
		kind := sayType(function.Sel.Name, key)
		switch {
		case err != nil || strings.HasPrefix(function.Sel.Name, "Group"):
			mistakes = append(mistakes, place+": no reader knows a key within a group")
			return true
		case kind == "":
			return true // no attribute
		case key != "error" && isError(call.Args[1]):
			mistakes = append(mistakes, place+": an error has the key error, not "+key)
		}
		if k[key] == nil {
			k[key] = map[string]string{}
		}
		k[key][kind] = place
		return true
	})
	return mistakes
}

// isKeyOf reports whether an expression is the key of another attribute.
func isKeyOf(e ast.Expr) bool {
	s, ok := e.(*ast.SelectorExpr)
	return ok && s.Sel.Name == "Key"
}

// isError reports whether an expression is an error, or its text.
func isError(e ast.Expr) bool {
	if call, ok := e.(*ast.CallExpr); ok {
		s, ok := call.Fun.(*ast.SelectorExpr)
		return ok && s.Sel.Name == "Error"
	}
	name, ok := e.(*ast.Ident)
	return ok && name.Name == "err"
}

// noProduct are the directories without code of the four programs.
var noProduct = regexp.MustCompile(`^(scripts|internal/(testsite|testenv|realsite|kubetest|slurmcluster)|.*/testdata|.*test|bridge/sim)$`)

func readLogKeys(t *testing.T) logKeys {
	t.Helper()
	found, fset := logKeys{}, token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, root+"/")
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (noProduct.MatchString(name) || strings.HasPrefix(entry.Name(), ".")):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, mistake := range found.add(fset, file) {
			t.Error(mistake)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// logRow is a row of the table of keys.
var logRow = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z ]+) \\| (\\S.*\\.) \\|$")

// Whoever collects the lines relies on the keys: one for each thing, with one type.
func TestTableOfLogKeysIsThatOfTheCode(t *testing.T) {
	t.Parallel()
	_, table, ok := strings.Cut(read(t, root+"/docs/operators/monitoring.md"), "| key | type | meaning |")
	if !ok {
		t.Fatal("there is no table of keys")
	}
	documented, order := map[string]string{}, []string{}
	for _, row := range logRow.FindAllStringSubmatch(table, -1) {
		documented[row[1]] = row[2]
		order = append(order, row[1])
	}
	if !slices.IsSorted(order) {
		t.Errorf("the rows have no order: %v", order)
	}
	found := readLogKeys(t)
	for _, key := range slices.Sorted(maps.Keys(found)) {
		for kind, place := range found[key] {
			if documented[key] != kind {
				t.Errorf("%s: the key %s is %s in the code, and %q in the table", place, key, kind, documented[key])
			}
		}
	}
	for _, key := range order {
		if found[key] == nil {
			t.Errorf("no program has the key %s", key)
		}
	}
	if len(found) < 50 {
		t.Errorf("only %d keys", len(found))
	}
}
