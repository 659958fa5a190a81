package compare

import (
	"path"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Entry is an entry of a tree. Of a directory that only one tree has it has the sums of all files in it.
type Entry struct {
	Type codalab.TargetType `json:"type"`
	Size int64              `json:"size"`
	// Files is the number of files of a directory.
	Files int `json:"files,omitempty"`
	// Executable is set for files with the owner's execute bit.
	Executable bool `json:"executable,omitempty"`
	// Link is the target of a symbolic link.
	Link string `json:"link,omitempty"`
}

// Pair is an entry of two trees; nil where a tree lacks it.
type Pair struct {
	// Path is empty for the root.
	Path string
	A, B *Entry
}

// AreFiles reports whether the entry is a file in both trees.
func (p Pair) AreFiles() bool {
	return p.A != nil && p.B != nil && p.A.Type == codalab.TargetFile && p.B.Type == codalab.TargetFile
}

// Tree is the difference of two trees, each list in the order of paths.
type Tree struct {
	// Differ are the entries that differ by what the trees tell. A directory that only one tree has is one of them, and
	// its own entries are not.
	Differ []Pair
	// Open are files of the same size: only their contents tell whether they differ.
	Open []Pair
	// Same is the number of links and empty files that are the same.
	Same int
	// Deep are directories whose entries the trees do not have, because they are too deep.
	Deep []string
}

// Trees compares two trees, each of which may be nil.
func Trees(a, b *codalab.TargetInfo) Tree {
	var t Tree
	t.add("", a, b)
	return t
}

func (t *Tree) add(at string, a, b *codalab.TargetInfo) {
	pair := Pair{at, entry(a), entry(b)}
	switch {
	case a == nil && b == nil:
	case a == nil || b == nil || a.Type != b.Type:
		t.Differ = append(t.Differ, pair)
	case a.Type == codalab.TargetDirectory:
		if a.Contents == nil || b.Contents == nil {
			t.Deep = append(t.Deep, at)
			return
		}
		t.entries(at, a.Contents, b.Contents)
	case a.Type == codalab.TargetLink && a.Link == b.Link, a.Type == codalab.TargetFile && a.Size == 0 && *pair.A == *pair.B:
		t.Same++
	case a.Type == codalab.TargetFile && *pair.A == *pair.B:
		t.Open = append(t.Open, pair)
	default:
		t.Differ = append(t.Differ, pair)
	}
}

// entries compares the entries of two directories. Servers list them in the order of names, or in none.
func (t *Tree) entries(at string, a, b []codalab.TargetInfo) {
	sides := map[string][2]*codalab.TargetInfo{}
	for side, list := range [][]codalab.TargetInfo{a, b} {
		for i := range list {
			both := sides[list[i].Name]
			both[side] = &list[i]
			sides[list[i].Name] = both
		}
	}
	for _, name := range sortedKeys(sides) {
		t.add(path.Join(at, name), sides[name][0], sides[name][1])
	}
}

// entry describes an entry; nil for none.
func entry(info *codalab.TargetInfo) *Entry {
	if info == nil {
		return nil
	}
	e := Entry{Type: info.Type}
	switch info.Type {
	case codalab.TargetFile:
		e.Size, e.Executable = info.Size, info.Perm&0o100 != 0
	case codalab.TargetLink:
		e.Link = info.Link
	case codalab.TargetDirectory:
		e.addAll(info.Contents)
	}
	return &e
}

// addAll adds the files of a directory and of those in it.
func (e *Entry) addAll(list []codalab.TargetInfo) {
	for _, one := range list {
		if one.Type == codalab.TargetFile {
			e.Size += one.Size
			e.Files++
		}
		e.addAll(one.Contents)
	}
}
