package flatten

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// stream makes a layer of lines such as
//
//	dir/              a directory
//	file=content      a file
//	link->target      a symbolic link
//	name=>target      a hard link
//	dir/.wh.name=     a whiteout
func stream(tb testing.TB, lines ...string) []byte {
	tb.Helper()
	made, err := makeStream(lines)
	must(tb, err)
	return made
}

func makeStream(lines []string) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, line := range lines {
		hdr, content := tar.Header{Mode: 0o644}, ""
		if name, target, ok := strings.Cut(line, "=>"); ok {
			hdr.Typeflag, hdr.Name, hdr.Linkname = tar.TypeLink, name, target
		} else if name, target, ok := strings.Cut(line, "->"); ok {
			hdr.Typeflag, hdr.Name, hdr.Linkname = tar.TypeSymlink, name, target
		} else if name, text, ok := strings.Cut(line, "="); ok {
			hdr.Typeflag, hdr.Name, hdr.Size, content = tar.TypeReg, name, int64(len(text)), text
		} else {
			hdr.Typeflag, hdr.Name, hdr.Mode = tar.TypeDir, line, 0o700
		}
		if err := w.WriteHeader(&hdr); err != nil {
			return nil, err
		}
		if _, err := io.WriteString(w, content); err != nil {
			return nil, err
		}
	}
	return buf.Bytes(), w.Close()
}

// streams makes layers of lines.
func streams(t *testing.T, layers [][]string) [][]byte {
	t.Helper()
	made := make([][]byte, len(layers))
	for i, lines := range layers {
		made[i] = stream(t, lines...)
	}
	return made
}

// reading counts the openings of each layer, and the attempts.
type reading struct {
	opened   []int
	attempts int
}

// flattenerOf returns a Flattener of layers in memory.
func flattenerOf(limits Limits, layers ...[]byte) (*Flattener, *reading) {
	r := &reading{opened: make([]int, len(layers))}
	open := func(_ context.Context, i int) (io.ReadCloser, error) {
		r.opened[i]++
		return io.NopCloser(bytes.NewReader(layers[i])), nil
	}
	return New(Layers{Number: len(layers), Open: open}, limits, Root{Mode: 0o755, Newest: 2_000_000_000}), r
}

func smallLimits() Limits {
	return Limits{Entries: 10_000, Bytes: 1 << 20, NameBytes: 1 << 20, Crowd: 10_000}
}

// flattened returns the tar stream of the layers.
func flattened(layers ...[]byte) ([]byte, *reading, error) {
	f, r := flattenerOf(smallLimits(), layers...)
	for {
		var out bytes.Buffer
		r.attempts++
		if err := f.Write(context.Background(), &out); !errors.Is(err, ErrAgain) || r.attempts > 1 {
			return out.Bytes(), r, err
		}
	}
}

// shown is one name of a flat stream.
type shown struct {
	line    string // without the content of files
	file    string // the name with which its content was written
	content string
}

// listing reads a flat tar stream strictly, into lines like stream's. The first name of a file has
// its content, and the others link to it. It marks directories that no layer describes.
func listing(stream []byte) ([]string, error) {
	all := map[string]*shown{"": {line: "/"}}
	r := tar.NewReader(bytes.NewReader(stream))
	for {
		hdr, err := r.Next()
		if errors.Is(err, io.EOF) {
			return lines(all)
		}
		if err != nil {
			return nil, err
		}
		name := strings.TrimSuffix(hdr.Name, "/")
		if all[name] != nil || name != cleanName(name) {
			return nil, fmt.Errorf("%q twice, or not clean", name)
		}
		s := &shown{}
		all[name] = s
		switch hdr.Typeflag {
		case tar.TypeDir:
			s.line = name + "/"
			if hdr.Mode == 0o755 {
				s.line += " implied"
			}
		case tar.TypeSymlink:
			s.line = name + "->" + hdr.Linkname
		case tar.TypeReg:
			content, err := io.ReadAll(r)
			if err != nil {
				return nil, err
			}
			s.file, s.content = name, string(content)
		case tar.TypeLink:
			target := all[hdr.Linkname]
			if target == nil {
				return nil, fmt.Errorf("link %q before its target %q", name, hdr.Linkname)
			}
			*s = *target
			if s.file == "" {
				s.line = name + "=>" + hdr.Linkname + "="
			}
		default:
			s.line = fmt.Sprintf("%s of type %c", name, hdr.Typeflag)
		}
	}
}

// lines checks that every name is in a directory.
func lines(all map[string]*shown) ([]string, error) {
	var lines []string
	first := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s := all[name]
		if name == "" {
			continue
		}
		if dir := all[parent(name)]; dir == nil || !strings.Contains(dir.line, "/") {
			return nil, fmt.Errorf("%q is in no directory", name)
		}
		switch {
		case s.file == "":
			lines = append(lines, s.line)
		case first[s.file] == "":
			first[s.file] = name
			lines = append(lines, name+"="+s.content)
		default:
			lines = append(lines, name+"=>"+first[s.file]+"="+s.content)
		}
	}
	slices.Sort(lines)
	return lines, nil
}

var must = testenv.Must
