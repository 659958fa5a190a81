package columns_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/cmd/internal/colour"
	"github.com/cl-slurm/cl-slurm/cmd/internal/columns"
)

func TestWidthIsThatOfATerminal(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"": 0, "abc": 3, "学習": 4, "ｱ": 1, "e\u0301": 1, "한국": 4, "👩‍🔬": 2, "\x1b[31mred\x1b[0m": 3, "Ω…": 2,
	} {
		if got := columns.Width(text); got != want {
			t.Errorf("%q has %d columns, want %d", text, got, want)
		}
	}
}

func TestCutEndsNoCharacterInItsMiddle(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text  string
		width int
		want  string
	}{
		{"abc", 3, "abc"},
		{"abcd", 3, "ab…"},
		{"学習率", 6, "学習率"},
		{"学習率", 5, "学習…"},
		{"学習率", 4, "学…"},
		{"学習率", 1, "…"},
		{"abc", 0, ""},
		{"abc", -1, ""},
		{"\x1b[31mfailed\x1b[0m", 4, "\x1b[31mfai…\x1b[0m"},
	} {
		if got := columns.Cut(test.text, test.width); got != test.want {
			t.Errorf("%q in %d columns is %q, want %q", test.text, test.width, got, test.want)
		}
	}
}

func someTable(width int) columns.Table {
	return columns.Table{
		Columns: []columns.Column{{Name: "ref", Right: true}, {Name: "uuid"}, {Name: "name"}, {Name: "summary"}, {Name: "state"}},
		Rows: [][]string{
			{"^2", "0x391c0e", "学習率を変えた実験", "! python train.py --lr 0.1 --epochs 90 --data in", "running"},
			{"^1", "0x12ab34", "train", "! python train.py --lr 0.3", "worker_offline"},
		},
		Width: width,
	}
}

func text(table columns.Table) string {
	l := table.Lay()
	lines := []string{l.Head(), strings.Repeat("-", l.Total)}
	for i := range table.Rows {
		lines = append(lines, l.Row(i))
	}
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n") + "\n"
}

func TestTableIsNarrowedFromItsWidestColumns(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		width int
		want  string
	}{
		{0, `ref  uuid      name                summary                                           state
---------------------------------------------------------------------------------------------------
 ^2  0x391c0e  学習率を変えた実験  ! python train.py --lr 0.1 --epochs 90 --data in  running
 ^1  0x12ab34  train               ! python train.py --lr 0.3                        worker_offline
`},
		{80, `ref  uuid      name                summary                        state
--------------------------------------------------------------------------------
 ^2  0x391c0e  学習率を変えた実験  ! python train.py --lr 0.1 -…  running
 ^1  0x12ab34  train               ! python train.py --lr 0.3     worker_offline
`},
		{48, `ref  uuid      name        summary     state
------------------------------------------------
 ^2  0x391c0e  学習率を…   ! python …  running
 ^1  0x12ab34  train       ! python …  worker_o…
`},
		{20, `ref  uuid      name…
--------------------
 ^2  0x391c0e  学習…
 ^1  0x12ab34  trai…
`},
	} {
		if diff := cmp.Diff(test.want, text(someTable(test.width))); diff != "" {
			t.Errorf("in %d columns (-want +got):\n%s", test.width, diff)
		}
	}
}

// However narrow a terminal is, no line wraps, and no colour is left on.
func TestNoLineIsWiderThanTheTerminal(t *testing.T) {
	t.Parallel()
	for width := 1; width <= 120; width++ {
		table := someTable(width)
		table.Paint = func(_, column int, text string) string {
			if column < 2 {
				return text
			}
			return colour.Palette(true).State("failed", text)
		}
		for _, line := range strings.Split(strings.TrimSuffix(text(table), "\n"), "\n") {
			if got := columns.Width(line); got > width {
				t.Errorf("in %d columns a line has %d: %q", width, got, line)
			}
			if on := strings.LastIndex(line, "\x1b[31m"); on > strings.LastIndex(line, "\x1b[0m") {
				t.Errorf("in %d columns a colour is left on: %q", width, line)
			}
			if plain := strings.NewReplacer("\x1b[31m", "", "\x1b[0m", "").Replace(line); strings.Contains(plain, "\x1b") {
				t.Errorf("in %d columns a sequence is broken: %q", width, line)
			}
		}
	}
}
