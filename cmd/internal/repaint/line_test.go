package repaint_test

import (
	"bytes"
	"testing"

	"github.com/cl-slurm/cl-slurm/cmd/internal/repaint"
)

func TestLineIsDrawnOnlyWhenItChanges(t *testing.T) {
	t.Parallel()
	var screen bytes.Buffer
	width := 80
	l := repaint.Line{To: &screen, Width: func() int { return width }}
	for _, step := range []struct {
		name string
		do   func() error
		want string
	}{
		{"nothing to clear", l.Clear, ""},
		{"nothing to leave", l.Leave, ""},
		{"first", func() error { return l.Show("1 of 2 ready") }, "\r\x1b[K1 of 2 ready"},
		{"the same again", func() error { return l.Show("1 of 2 ready") }, ""},
		{"narrow terminal", func() error { width = 8; return l.Show("1 of 2 ready") }, "\r\x1b[K1 of 2…"},
		{"clear", l.Clear, "\r\x1b[K"},
		{"again", func() error { return l.Show("学習率1") }, "\r\x1b[K学習率1"},
		{"narrower", func() error { width = 6; return l.Show("学習率1") }, "\r\x1b[K学習…"},
		{"leave", l.Leave, "\n"},
		{"clear what was left", l.Clear, ""},
	} {
		screen.Reset()
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if got := screen.String(); got != step.want {
			t.Errorf("%s: writes %q, want %q", step.name, got, step.want)
		}
	}
}
