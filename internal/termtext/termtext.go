// Package termtext formats the output of commands, and keeps foreign text from steering terminals.
package termtext

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Table aligns the columns of rows. Each row is one line, whatever its cells hold.
func Table(rows [][]string) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = OneLine(cell)
		}
		_, _ = w.Write([]byte(strings.Join(cells, "\t") + "\n")) // into memory
	}
	_ = w.Flush()
	return out.String()
}

// Line returns a text of other programs as one line (OneLine) without spaces around it, or a dash for an
// empty one.
func Line(s string) string { return cmp.Or(strings.TrimSpace(OneLine(s)), "-") }

// Clock returns a moment in the reader's time zone.
func Clock(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05 -0700") }

// Number returns n, or a dash for 0.
func Number(n int64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

// Count returns a number of things: "1 node", "2 nodes".
func Count[N int | int64](n N, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// Ago returns the rough duration since then.
func Ago(now, then time.Time) string {
	d := max(now.Sub(then), 0)
	switch {
	case d < time.Minute:
		return "now"
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", int(d.Hours()))
	}
	return fmt.Sprintf("%dd ago", int(d.Hours()/24))
}
