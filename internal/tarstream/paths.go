package tarstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Input is a file or directory that the caller owns or trusts, to be packed by its path.
type Input struct {
	// Name is its path in the archive. "." puts the entries of a directory at the top.
	Name string
	Path string
}

// PathOptions are the options of PackPaths.
type PathOptions struct {
	PackOptions
	// Follow packs the targets of symbolic links, wherever they are, in place of the links. A
	// link without a target, or to a directory above it, is an error.
	Follow bool
}

// PackPaths is Pack for the caller's own files: they may be anywhere, also behind links.
func PackPaths(ctx context.Context, w io.Writer, inputs []Input, opts PathOptions) error {
	p := newPacker(ctx, opts.PackOptions)
	p.follow = opts.Follow
	return write(w, p, func(p *packer) error { return p.inputs(inputs) })
}

// MeasurePaths returns the size of the entries that PackPaths would pack. It fails if a file may
// not be read.
func MeasurePaths(ctx context.Context, inputs []Input, opts PathOptions) (Size, error) {
	p := newPacker(ctx, opts.PackOptions)
	p.follow = opts.Follow
	err := p.inputs(inputs)
	return p.size, err
}

func (p *packer) inputs(inputs []Input) error {
	for _, in := range inputs {
		at := location{path: in.Path}
		if in.Name == "." {
			if err := p.top(at); err != nil {
				return err
			}
			continue
		}
		info, err := at.lstat()
		if err != nil {
			return err
		}
		if err := p.entry(at, in.Name, fs.FileInfoToDirEntry(info)); err != nil {
			return err
		}
	}
	return nil
}

// measure adds the size of a file, after checking that it may be read.
func (p *packer) measure(at location, below string, e fs.DirEntry) error {
	info, err := e.Info()
	if err != nil {
		return p.skip(at, below, e, err)
	}
	if err := mayRead(at.path); err != nil {
		return p.skip(at, below, e, &fs.PathError{Op: "open", Path: at.path, Err: err})
	}
	if id, several := severalNames(info); several {
		if _, ok := p.linked[id]; ok {
			return p.write('1', below, "", info)
		}
		p.linked[id] = below
	}
	return p.write('0', below, "", info)
}

// ExcludedBy reports whether tar(1) leaves out an entry for --exclude=pattern. The pattern is a
// shell's, with wildcards that match slashes. It must match the entry's path or, unless it begins
// with "./", any part of the path after a slash. For a pattern such as ".*", which matches the
// packed directory's own name, tar leaves out everything; here it applies to the entries.
func ExcludedBy(pattern, below string) bool {
	pattern, anchored := strings.CutPrefix(pattern, "./")
	for ok := true; ok; _, below, ok = strings.Cut(below, "/") {
		if matches(maskSlashes(pattern), maskSlashes(below)) {
			return true
		}
		if anchored {
			return false
		}
	}
	return false
}

// IgnoredBy reports whether tar(1) leaves out an entry for a pattern in a file of
// --exclude-ignore. The pattern must match the entry's path, with or without "./", or its name.
// Wildcards match no slashes.
func IgnoredBy(pattern, below string) bool {
	return matches(pattern, "./"+below) || matches(pattern, below) || matches(pattern, path.Base(below))
}

// matches is path.Match with the negation of shells. A pattern that is none matches itself.
func matches(pattern, name string) bool {
	pattern = strings.ReplaceAll(pattern, "[!", "[^")
	ok, err := path.Match(pattern, name)
	return ok || errors.Is(err, path.ErrBadPattern) && pattern == name
}

// maskSlashes replaces slashes, which path.Match's wildcards do not match, by a byte that no
// name contains.
func maskSlashes(s string) string { return strings.ReplaceAll(s, "/", "\x00") }

// ReadIgnoreFile returns the patterns in a file for tar's --exclude-ignore; none if the file does
// not exist. It skips blank lines and lines that begin with #; a pattern with a leading # begins
// with \#.
func ReadIgnoreFile(file string) ([]string, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read patterns: %w", err)
	}
	var patterns []string
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		patterns = append(patterns, line) // a pattern's \# matches #
	}
	return patterns, nil
}
