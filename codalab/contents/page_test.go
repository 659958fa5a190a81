package contents_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/contents"
)

// The pages of a directory have all of its entries, in their order, whoever cuts them.
func TestPagesOfADirectoryHaveAllEntries(t *testing.T) {
	t.Parallel()
	root := bundle(t)
	var want []string
	dir := filepath.Join(root.Name(), "many")
	must(t, os.Mkdir(dir, 0o755))
	for i := range 9000 {
		want = append(want, fmt.Sprint(i))
		must(t, os.WriteFile(filepath.Join(dir, want[i]), nil, 0o600))
	}
	slices.Sort(want)
	for name, read := range map[string]func(page contents.Page) (codalab.TargetInfo, error){
		"read": func(page contents.Page) (codalab.TargetInfo, error) { return contents.InfoPage(root, "many", page) },
		"cut": func(page contents.Page) (codalab.TargetInfo, error) {
			info, err := contents.Info(root, "many", 1)
			page.Cut(&info)
			return info, err
		},
	} {
		var got []string
		for page := (contents.Page{First: 4000}); ; page.After = got[len(got)-1] {
			info, err := read(page)
			if err != nil || info.Entries != len(want) || info.Type != codalab.TargetDirectory {
				t.Fatalf("%s: %v, %d entries", name, err, info.Entries)
			}
			if len(info.Contents) == 0 {
				break
			}
			for _, e := range info.Contents {
				got = append(got, e.Name)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %d entries instead of %d", name, len(got), len(want))
		}
	}
}

// Pipes are no entries, and any number of them keeps no file from its page.
func TestPageGoesOnBehindPipes(t *testing.T) {
	t.Parallel()
	root := bundle(t)
	dir := filepath.Join(root.Name(), "many")
	must(t, os.Mkdir(dir, 0o755))
	for i := range 6000 { // more than are read at once
		must(t, syscall.Mkfifo(filepath.Join(dir, fmt.Sprintf("a%04d", i)), 0o600))
	}
	for _, name := range []string{"a0000x", "b", "c", "d"} {
		must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
	}
	var got []string
	for page := (contents.Page{First: 2}); ; page.After = got[len(got)-1] {
		info, err := contents.InfoPage(root, "many", page)
		if err != nil || info.Entries != 6004 || len(info.Contents) > 2 {
			t.Fatalf("%v %+v", err, info)
		}
		if len(info.Contents) == 0 {
			break
		}
		for _, e := range info.Contents {
			got = append(got, e.Name)
		}
	}
	if want := []string{"a0000x", "b", "c", "d"}; !slices.Equal(got, want) {
		t.Errorf("%q instead of %q", got, want)
	}
}

// A page describes each target as Info does.
func TestPageOfAnyTarget(t *testing.T) {
	t.Parallel()
	root := bundle(t)
	for _, p := range []string{"", "sub", "sub/f", "in", "up", "pipe", "nothing", "loop/x", "../secret"} {
		all, wantErr := contents.Info(root, p, 1)
		some, err := contents.InfoPage(root, p, contents.Page{First: 100})
		if some.Entries = 0; fmt.Sprint(all, wantErr) != fmt.Sprint(some, err) {
			t.Errorf("%q: %v %v instead of %v %v", p, some, err, all, wantErr)
		}
	}
	reply, _ := contents.Reply(t.Context(), root, codalab.Target{BundleUUID: uuid}, codalab.ReadArgs{Type: codalab.ReadTargetInfo, Depth: 1, First: 2, After: "dep"}, []string{"sub"})
	if got := reply.TargetInfo; got == nil || len(got.Contents) != 2 || got.Contents[0].Name != "in" {
		t.Errorf("a worker replies %+v", reply)
	}
}
