package fetch

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

// A server describes a directory, whose names any user has chosen. No entry leads out of it, and no sum of sizes hides
// that it is too large.
func FuzzTree(f *testing.F) {
	f.Add(`{"type":"directory","contents":[{"name":"a","type":"file","size":3},{"name":"l","type":"link","link":"../x"},{"name":"d","type":"directory","contents":[]}]}`)
	f.Add(`{"type":"directory","contents":[{"name":"..","type":"file","size":1}]}`)
	f.Add(`{"type":"directory","contents":[{"name":"a","type":"file","size":9223372036854775807},{"name":"b","type":"file","size":9223372036854775807}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		var info codalab.TargetInfo
		if json.Unmarshal([]byte(text), &info) != nil {
			return
		}
		const most = 1 << 40
		tree, err := newTree(info, tarstream.Limits{Bytes: most, Entries: 100})
		if err != nil {
			return
		}
		sum := int64(0)
		for _, e := range tree.all {
			if !filepath.IsLocal(e.path) {
				t.Errorf("%q has the path %q", text, e.path)
			}
			if e.Type == codalab.TargetFile {
				if sum += e.Size; e.Size > most || sum > most {
					t.Fatalf("%q is larger than the limit", text)
				}
			}
		}
	})
}

// The journal of a fetch is a file on the shared disk.
func FuzzJournalLine(f *testing.F) {
	f.Add(`whole 5 "a/b"`)
	f.Add(`part -1 "\xff"`)
	f.Fuzz(func(t *testing.T, line string) {
		if what, name, n, ok := parseLine(line); ok && what != "whole" && what != "part" {
			t.Errorf("%q is %s %q %d", line, what, name, n)
		}
	})
}
