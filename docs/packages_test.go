package docs_test

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// packages lists the directories with the product's code.
func packages(t *testing.T) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == "testdata" || strings.HasPrefix(name, ".") && name != ".."):
			return fs.SkipDir
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
			found = append(found, strings.TrimPrefix(filepath.Dir(path), root+"/"))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// The page of the architecture names each package, by its path or the end of that. Packages inside another one's internal
// directory are a matter of that one, and those below scripts are the programs of make.
func TestPackagesAreListed(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile("`([a-z][a-z0-9/-]*)`").FindAllStringSubmatch(read(t, "ARCHITECTURE.md"), -1)
	for _, p := range packages(t) {
		above, _, nested := strings.Cut(p, "/internal/")
		if nested && above != "cmd" || strings.HasPrefix(p, "scripts/") {
			continue
		}
		if !slices.ContainsFunc(named, func(n []string) bool { return p == n[1] || strings.HasSuffix(p, "/"+n[1]) }) {
			t.Errorf("docs/ARCHITECTURE.md has no package %s", p)
		}
	}
}
