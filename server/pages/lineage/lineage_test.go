package lineage_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/server/pages/lineage"
)

// bundles is a server with bundles, the oldest first, of which the reader may read those without "secret" in their names. It
// counts its calls.
type bundles struct {
	list  []codalab.Bundle
	calls int
}

// of makes bundles of lines such as "train: code=train.py data", each with its inputs, and maybe their paths.
func of(lines ...string) *bundles {
	s := &bundles{}
	for _, line := range lines {
		name, inputs, _ := strings.Cut(line, ":")
		b := codalab.Bundle{UUID: "0x" + name, Type: codalab.TypeRun, State: codalab.StateReady, Metadata: codalab.Metadata{"name": name}}
		for in := range strings.FieldsSeq(inputs) {
			parent, path, _ := strings.Cut(in, "=")
			b.Dependencies = append(b.Dependencies, codalab.Dependency{ParentUUID: "0x" + parent, ChildPath: path})
		}
		s.list = append(s.list, b)
	}
	return s
}

func (s *bundles) FindBundles(_ context.Context, _ string, words, _, _ []string) ([]client.BundleInfo, json.RawMessage, error) {
	s.calls++
	limit := 10
	var found []client.BundleInfo
	key, values, _ := strings.Cut(words[0], "=")
	wanted := strings.Split(values, ",")
	for _, b := range slices.Backward(s.list) {
		matches := key == "uuid" && slices.Contains(wanted, b.UUID) ||
			key == "dependency" && slices.ContainsFunc(b.Dependencies, func(d codalab.Dependency) bool { return slices.Contains(wanted, d.ParentUUID) })
		if matches && !strings.Contains(b.UUID, "secret") {
			found = append(found, client.BundleInfo{Bundle: b})
		}
	}
	for _, word := range words[1:] {
		if word == ".count" {
			return nil, json.RawMessage(strconv.Itoa(len(found))), nil
		}
		if text, ok := strings.CutPrefix(word, ".limit="); ok {
			limit, _ = strconv.Atoi(text)
		}
	}
	return found[:min(limit, len(found))], nil, nil
}

// read reads the graph of the bundle named a.
func read(t *testing.T, s *bundles) lineage.Graph {
	t.Helper()
	i := slices.IndexFunc(s.list, func(b codalab.Bundle) bool { return b.UUID == "0xa" })
	g, err := lineage.Read(t.Context(), s, s.list[i])
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// many are lines of the form of of, with numbers in place of #.
func many(n int, line string) []string {
	var lines []string
	for i := range n {
		lines = append(lines, strings.ReplaceAll(line, "#", strconv.Itoa(i)))
	}
	return lines
}

// columns are the boxes of a picture, column by column.
func columns(p lineage.Picture) []string {
	var list []string
	x := -1
	for _, b := range p.Boxes {
		name := b.Shown
		if b.Here {
			name = "(" + name + ")"
		}
		if b.X == x {
			list[len(list)-1] += " | " + name
			continue
		}
		x = b.X
		list = append(list, name)
	}
	return list
}

func TestPictureHasInputsOnTheLeftAndUsesOnTheRight(t *testing.T) {
	t.Parallel()
	inputs := func(n int) string {
		return strings.Join(many(n, " in#=p#"), "")
	}
	for name, test := range map[string]struct {
		of   *bundles
		want []string
	}{
		"alone":            {of("a"), []string{"(a)"}},
		"a chain":          {of("z", "y: z", "a: y", "b: a", "c: b", "d: c"), []string{"z", "y", "(a)", "b", "c"}},
		"its input's, too": {of("code", "data: code", "a: code data", "b: a", "c: a b"), []string{"code", "data", "(a)", "b", "c"}},
		"a use of both":    {of("data", "a: data", "eval: data a"), []string{"data", "(a)", "eval"}},
		"crossed":          {of("z1", "z2", "y1: z1", "y2: z2", "a: y2 y1"), []string{"z2 | z1", "y2 | y1", "(a)"}},
		"secret":           {of("my-secret", "a: my-secret", "b-secret: a"), []string{"not readable", "(a)"}},
		"gone":             {of("a: nothing"), []string{"not readable", "(a)"}},
		"itself":           {of("a: a"), []string{"(a)"}},
		"a circle":         {of("a: c", "b: a", "c: b"), []string{"b", "c", "(a)"}},
		"many inputs":      {of(slices.Concat(many(10, "in#"), []string{"a:" + inputs(10)})...), []string{strings.Join(many(8, "in#"), " | ") + " | and 2 more", "(a)"}},
		"many uses":        {of(append([]string{"a"}, many(30, "u#: a")...)...), []string{"(a)", "u29 | u28 | u27 | u26 | u25 | u24 | u23 | u22 | and 22 more"}},
		"many users of uses": {
			of(append([]string{"a", "b: a", "c: a b"}, many(30, "u#: b")...)...),
			[]string{"(a)", "b", "u29 | u28 | u27 | u26 | u25 | u24 | u23 | u22 | c | and 22 more"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := lineage.Draw(read(t, test.of))
			if diff := cmp.Diff(test.want, columns(p)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			checkRoom(t, p)
		})
	}
}

// checkRoom fails for a picture in which boxes overlap, or are outside.
func checkRoom(t *testing.T, p lineage.Picture) {
	t.Helper()
	for i, a := range p.Boxes {
		if a.X < 0 || a.Y < 0 || a.X+a.Width() > p.Width || a.Y+a.Height > p.Height {
			t.Errorf("%s is outside", a.Title)
		}
		for _, b := range p.Boxes[:i] {
			if a.X < b.X+b.Width() && b.X < a.X+a.Width() && a.Y < b.Y+b.Height && b.Y < a.Y+a.Height {
				t.Errorf("%s and %s overlap", a.Title, b.Title)
			}
		}
		for _, port := range a.Ports {
			if port.Y < a.Y || port.Y > a.Y+a.Height {
				t.Errorf("an input of %s is outside of it", a.Title)
			}
		}
	}
}

// However many bundles there are, the graph has some, found by a few calls, and each time the same ones.
func TestGraphIsBounded(t *testing.T) {
	t.Parallel()
	lines := many(300, "z#")
	for i := range 300 {
		lines = append(lines, fmt.Sprintf("y%d:%s", i, strings.Join(many(300, " z#=in#"), "")))
	}
	lines = append(lines, "a:"+strings.Join(many(300, " y#=in#"), ""))
	lines = append(lines, many(300, "u#: a z1 z2 y3")...)
	for i := range 300 {
		lines = append(lines, fmt.Sprintf("v%d:%s", i, strings.Join(many(300, " u#=in#"), "")))
	}
	s := of(lines...)
	g := read(t, s)
	if len(g.Nodes) > 40 || len(g.More) != 4 || s.calls > 6 {
		t.Errorf("%d bundles, and %v, by %d calls", len(g.Nodes), g.More, s.calls)
	}
	p := lineage.Draw(g)
	checkRoom(t, p)
	if diff := cmp.Diff(p, lineage.Draw(read(t, s)), cmp.AllowUnexported(lineage.Node{})); diff != "" {
		t.Errorf("drawn again:\n%s", diff)
	}
}

func TestLongTextsAreCut(t *testing.T) {
	t.Parallel()
	s := of("in", "a")
	long := strings.Repeat("<script>\u202e ", 1000)
	s.list[0].Metadata["name"], s.list[1].Metadata["name"] = long, long
	s.list[1].Dependencies = []codalab.Dependency{{ParentUUID: "0xin", ChildPath: long}}
	g := read(t, s)
	for _, b := range lineage.Draw(g).Boxes {
		for _, port := range b.Ports {
			b.Shown += port.Shown
		}
		if len(b.Shown) > 100 || len(b.Title) > 1000 || strings.ContainsRune(b.Shown+b.Title, '\u202e') {
			t.Errorf("shown as %q, %q", b.Shown, b.Title)
		}
	}
	for _, item := range g.Inputs() {
		if text := item.Text + item.Paths[0]; len(text) > 1000 || strings.ContainsRune(text, '\u202e') {
			t.Errorf("listed as %q", text)
		}
	}
}

// The list has each bundle's own once.
func TestListSaysTheSame(t *testing.T) {
	t.Parallel()
	g := read(t, of("z", "y: z=in", "a: y=b/y z", "c: a", "d: c a"))
	var write func(list []lineage.Item) string
	write = func(list []lineage.Item) string {
		var parts []string
		for _, item := range list {
			text := item.Text + " as " + strings.Join(item.Paths, " ")
			if item.Again {
				text += " again"
			}
			if len(item.Items) > 0 {
				text += " (" + write(item.Items) + ")"
			}
			parts = append(parts, text)
		}
		return strings.Join(parts, "; ")
	}
	if got, want := write(g.Inputs()), "y as b/y (z as in); z as its contents again"; got != want {
		t.Errorf("inputs: %s instead of %s", got, want)
	}
	if got, want := write(g.Uses()), "d as its contents; c as its contents (d as its contents again)"; got != want {
		t.Errorf("uses: %s instead of %s", got, want)
	}
}
