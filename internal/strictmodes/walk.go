package strictmodes

import (
	"os"
	"path/filepath"
	"strings"
)

// walk follows a path from the root directory, and returns each name on the way. It is not whole if the path does not
// exist; the steps end before the first missing name.
func walk(path string) (steps []Step, whole bool, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, false, err
	}
	root, err := read("/", false)
	if err != nil {
		return nil, false, err
	}
	steps = append(steps, root)
	way := []Step{root} // the directories from the root to the present one
	rest, links := names(path), 0
	for len(rest) > 0 {
		name, at := rest[0], way[len(way)-1]
		rest = rest[1:]
		if name == ".." {
			way = way[:max(1, len(way)-1)]
			continue
		}
		s, err := read(filepath.Join(at.Path, name), at.Mode&os.ModeSticky != 0)
		if isMissing(err) {
			return steps, false, nil
		}
		if err != nil {
			return nil, false, err
		}
		steps = append(steps, s)
		if s.Mode&os.ModeSymlink == 0 {
			way = append(way, s)
			continue
		}
		if links++; links > maxLinks {
			return nil, false, &os.PathError{Op: "follow", Path: path, Err: errLoop}
		}
		target, err := os.Readlink(s.Path)
		if err != nil {
			return nil, false, err
		}
		if filepath.IsAbs(target) {
			way = way[:1]
		}
		rest = append(names(target), rest...)
	}
	if end := way[len(way)-1]; end.Path != steps[len(steps)-1].Path {
		steps = append(steps, end) // a path that ends in ..
	}
	return steps, true, nil
}

// names returns the names of a path.
func names(path string) []string {
	var found []string
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			found = append(found, name)
		}
	}
	return found
}
