package repaint_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/cl-slurm/cl-slurm/cmd/internal/repaint"
)

func TestScreenWritesOnlyChangedLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	width, height := 10, 3
	s := repaint.Screen{To: &out, Size: func() (int, int) { return width, height }}
	show := func(lines ...string) func() error { return func() error { return s.Show(lines) } }
	for _, step := range []struct {
		name string
		do   func() error
		want string
	}{
		{"nothing to give back", s.Close, ""},
		{"first", show("a", "b"), "\x1b[?1049h\x1b[?25l\x1b[2J\x1b[1;1H\x1b[Ka\x1b[2;1H\x1b[Kb"},
		{"the same again", show("a", "b"), ""},
		{"one changes", show("a", "c"), "\x1b[2;1H\x1b[Kc"},
		{"more than there is room for", show("a", "c", "d", "e"), "\x1b[3;1H\x1b[Kd"},
		{"fewer", show("a"), "\x1b[2;1H\x1b[J"},
		{"too wide", show("学習率を変えた"), "\x1b[1;1H\x1b[K学習率を…"},
		{"resized", func() error {
			width = 5
			if !s.Resized() {
				return errors.New("the new size is not noticed")
			}
			return s.Show([]string{"学習率を変えた"})
		}, "\x1b[2J\x1b[1;1H\x1b[K学習…"},
		{"end", s.Close, "\x1b[?25h\x1b[?1049l"},
		{"again", s.Close, ""},
	} {
		out.Reset()
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if got := out.String(); got != step.want {
			t.Errorf("%s: writes %q, want %q", step.name, got, step.want)
		}
	}
}
