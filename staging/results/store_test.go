package results

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
)

const parentUUID = "0x00000000000000000000000000000002"

func TestDependencyIsFoundInTheServersStore(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	plant(t, dir, map[string]string{
		"disk2/bundles/" + parentUUID + "/sub/f": "1", "disk2/bundles/" + parentUUID + "/near": "->sub", "disk2/bundles/" + parentUUID + "/out": "->../other",
		"disk2/bundles/other/f": "2", "store/partitions/two": "->../../disk2",
		"store/bundles/" + parentUUID + "-ab/contents": "a file", "store/bundles/" + parentUUID + "-cd/contents": "->../../../secret",
		"secret/s": "secret", "store/bundles/0xother/contents/f": "3",
	})
	s := &Store{Dir: filepath.Join(dir, "store")}
	find := func(location, below string) (string, bool, error) {
		location = filepath.Join(dir, location)
		dep, found, err := s.Dependency("dependency in ("+parentUUID+")", codalab.RunDependency{
			Dependency: codalab.Dependency{ChildPath: "in", ParentUUID: parentUUID, ParentPath: below}, Location: &location,
		})
		if err == nil && found && (!dep.InPlace || dep.Link != nil || dep.ChildPath != "in") {
			t.Errorf("%+v", dep)
		}
		return strings.TrimPrefix(dep.Source, dir+"/"), found, err
	}
	for _, c := range []struct{ location, below, source string }{
		{"store/partitions/two/bundles/" + parentUUID, "", "disk2/bundles/" + parentUUID},
		{"store/partitions/two/bundles/" + parentUUID + "/", "sub/f", "disk2/bundles/" + parentUUID + "/sub/f"},
		{"store/partitions/two/bundles/" + parentUUID, "near/f", "disk2/bundles/" + parentUUID + "/sub/f"},
		{"store/bundles/" + parentUUID + "-ab/contents", "", "store/bundles/" + parentUUID + "-ab/contents"},
	} {
		if got, found, err := find(c.location, c.below); err != nil || !found || got != c.source {
			t.Errorf("%s, %s: %s, %v, %v", c.location, c.below, got, found, err)
		}
	}
	for _, c := range []struct {
		location, below, words string
		again                  bool
	}{
		{"store/partitions/two/bundles/" + parentUUID, "out/f", "the path out/f leads out of it", false},
		{"store/partitions/two/bundles/" + parentUUID, "out/nosuch", "the path out/nosuch leads out of it", false},
		{"store/partitions/two/bundles/" + parentUUID, "../other/f", "the path ../other/f is not there", false},
		{"store/partitions/two/bundles/" + parentUUID, "nosuch", "dependency in (" + parentUUID + "): the path nosuch is not there", false},
		{"store/partitions/two/bundles/" + parentUUID, "sub/nosuch/g", "the path sub/nosuch/g is not there", false},
		{"store/partitions/two/bundles/" + parentUUID, "sub/f/g", "the path sub/f/g is not there", false},
		{"store/bundles/" + parentUUID + "-ab/contents", "f", "the path f is not there", false},
		{"store/bundles/" + parentUUID + "-cd/contents", "", "there is a symbolic link in the path", false},
		{"store/bundles/" + parentUUID + "-ef/contents", "", "bundles/" + parentUUID + "-ef/contents: it is not there", true},
		{"store/partitions/one/bundles/" + parentUUID, "", "partitions/one/bundles/" + parentUUID + ": it is not there", true},
		{"store/bundles/0xother/contents", "", "which is not named for it", false},
		{"store", "", "which is not named for it", false},
	} {
		_, found, err := find(c.location, c.below)
		if wantError(t, err, c.words, c.again); !found {
			t.Errorf("%s, %s is not found", c.location, c.below)
		}
	}
	for _, outside := range []string{"secret/" + parentUUID, "store/../secret/" + parentUUID, "storehouse/" + parentUUID} {
		if _, found, err := find(outside, ""); found || err != nil {
			t.Errorf("%s is not the store's: %v, %v", outside, found, err)
		}
	}
	if _, found, err := s.Dependency("dependency in ("+parentUUID+")", codalab.RunDependency{}); found || err != nil {
		t.Errorf("no location: %v, %v", found, err)
	}
}
