package tarstream

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
)

// Some hundred kilobytes of names with 2,000 directories each would take hours.
func TestWaysThroughManyDirectoriesAreCounted(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("/d", 200)
	for name, entries := range map[string][]tar.Header{
		"files in turn": {{Name: "a" + deep + "/f"}, {Name: "b" + deep + "/f"}, {Name: "a" + deep + "/g"}, {Name: "b" + deep + "/g"}},
		"hard links":    {{Name: "a" + deep + "/f"}, {Name: "a" + deep + "/1", Linkname: "a" + deep + "/f"}, {Name: "a" + deep + "/2", Linkname: "a" + deep + "/f"}},
	} {
		root, err := os.OpenRoot(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		u := unpacker{tree: newTree(root), buf: make([]byte, 1024)}
		for i, header := range entries {
			header.Typeflag, header.Mode = tar.TypeReg, 0o600
			if header.Linkname != "" {
				header.Typeflag = tar.TypeLink
			}
			last := i == len(entries)-1
			if last {
				u.tree.opened += openedAtFirst + openedPerEntry*u.size.Entries - u.tree.opened
			}
			if err := u.entry(&header, bytes.NewReader(nil)); errors.Is(err, ErrTooLarge) != last || !last && err != nil {
				t.Errorf("%s: entry %d: %v", name, i, err)
			}
		}
		if err := errors.Join(u.tree.close(), root.Close()); err != nil {
			t.Error(err)
		}
	}
}
