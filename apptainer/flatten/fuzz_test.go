package flatten

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Any three layers are refused, or flattened to a valid stream. The stream is the same with and
// without prediction, and flattens to itself.
func FuzzFlatten(f *testing.F) {
	f.Add("d/\nd/a=1\nl->d\nh=>d/a", "l/.wh.a=\nd/.wh..wh..opq=\nl/x=2", "h=3")
	f.Add("a->b\nb->a", "a/b/../c=1\n.wh.a=", "c/\nc/d=>a")
	f.Add("a=1\nb=>a", "a=2\na=3\nc=>b", ".wh.b=\na/x=1")
	f.Fuzz(func(t *testing.T, lowest, middle, upper string) {
		var layers [][]byte
		for _, text := range []string{lowest, middle, upper} {
			layer, err := makeStream(strings.Split(text, "\n"))
			if err != nil {
				t.Skip("no tar stream holds such names")
			}
			layers = append(layers, layer)
		}
		flat, _, err := flattened(layers...)
		if err != nil {
			return
		}
		once := mustList(t, flat)
		if diff := cmp.Diff(mustList(t, unpredicted(t, layers...)), once); diff != "" {
			t.Errorf("in one pass (-exact +got):\n%s", diff)
		}
		if strings.Contains(strings.Join(once, "\n"), whiteoutPrefix) {
			return // such as a directory that an entry in it implies
		}
		again, _, err := flattened(flat)
		must(t, err)
		if diff := cmp.Diff(once, mustList(t, again)); diff != "" {
			t.Errorf("flattened again (-once +twice):\n%s", diff)
		}
	})
}

func mustList(t *testing.T, stream []byte) []string {
	t.Helper()
	lines, err := listing(stream)
	must(t, err)
	return lines
}

// unpredicted flattens layers without prediction.
func unpredicted(t *testing.T, layers ...[]byte) []byte {
	t.Helper()
	f, _ := flattenerOf(smallLimits(), layers...)
	f.root.Newest = -1
	if err := f.Write(context.Background(), io.Discard); !errors.Is(err, ErrAgain) {
		t.Fatalf("error %v", err)
	}
	var out bytes.Buffer
	must(t, f.Write(context.Background(), &out))
	return out.Bytes()
}
