package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/cmd/internal/colour"
	"github.com/cl-slurm/cl-slurm/cmd/internal/columns"
	"github.com/cl-slurm/cl-slurm/cmd/internal/compare"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// The most that cl diff shows of each file; --json, and a file that is named, have all.
const (
	diffLines  = 60
	diffValues = 50
	// diffCell is the widest value that stands beside the other one; longer ones stand below each other.
	diffCell = 40
)

// diffPrinter prints the difference of two bundles.
type diffPrinter struct {
	a, b   diffSide
	colour colour.Palette
	// width is that of the terminal, 0 for none.
	width int
	named bool
	out   strings.Builder
	// contents makes a line of a file harmless for a terminal, and leaves it as it is for a pipe.
	contents func(string) string
}

func (c *cli) printDiff(r diffReport, a, b diffSide, o diffOptions) error {
	p := &diffPrinter{a: a, b: b, colour: c.palette(c.Stdout), named: a.target.Subpath != "" || b.target.Subpath != "", contents: plain}
	if width := screenWidth(c.Stdout); width != nil {
		p.width, p.contents = width(), termtext.Escape
	}
	if len(r.Fields)+len(r.Measured)+len(r.Files)+len(r.NotCompared) > 0 {
		p.line(p.colour.Removed, "--- "+a.name(""))
		p.line(p.colour.Added, "+++ "+b.name(""))
	}
	p.facts(fieldFacts(slices.Concat(r.Fields, r.Measured)))
	if len(r.Files)+len(r.NotCompared) > 0 {
		p.line(plain, "")
	}
	p.files(r)
	if !o.stat {
		p.insides(r.Files)
	}
	if _, err := io.WriteString(termtext.Raw(c.Stdout), p.out.String()); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// plain paints nothing.
func plain(text string) string { return text }

// line prints a line.
func (p *diffPrinter) line(paint func(string) string, text string) {
	p.out.WriteString(paint(termtext.Escape(text)) + "\n")
}

// absent stands for a value that one side lacks.
const absent = "-"

// fact is a line about one difference.
type fact struct{ name, a, b, change string }

// fieldFacts returns fields in the form of cl info.
func fieldFacts(values []compare.Value) (facts []fact) {
	for _, v := range values {
		facts = append(facts, fact{strings.TrimPrefix(v.Name, settingPrefix), side(v.A, v.Name), side(v.B, v.Name), ""})
	}
	return facts
}

// side is the text of a value; that of a field of a bundle if its key is given.
func side(v any, key string) string {
	switch {
	case v == nil:
		return absent
	case key != "":
		return codalab.FormatMetadata(key, v, time.Local)
	}
	return codalab.PythonStr(v)
}

// valueFacts returns values in a file.
func valueFacts(file string, values []compare.Value) (facts []fact) {
	for _, v := range values {
		change := ""
		if n, ok := v.Change(); ok {
			if change = strconv.FormatFloat(n, 'g', 4, 64); n > 0 {
				change = "+" + change
			}
		}
		facts = append(facts, fact{file + ":" + v.Name, side(v.A, ""), side(v.B, ""), change})
	}
	return facts
}

// facts prints facts side by side if they fit, and else below each other.
func (p *diffPrinter) facts(facts []fact) {
	t := columns.Table{Columns: []columns.Column{{}, {}, {}, {Right: true}}, Paint: p.paintCell}
	var long, short []fact
	for _, f := range facts {
		if !fits(f.a) || !fits(f.b) {
			long = append(long, f)
			continue
		}
		short = append(short, f)
		t.Rows = append(t.Rows, []string{termtext.OneLine(f.name), termtext.OneLine(f.a), termtext.OneLine(f.b), f.change})
	}
	if l := t.Lay(); p.width > 0 && l.Total > p.width {
		long = facts
	} else {
		for i := range short {
			p.out.WriteString(strings.TrimRight(l.Row(i), " ") + "\n")
		}
	}
	for _, f := range long {
		p.line(p.colour.Bold, f.name)
		if f.a != absent {
			p.block("- ", f.a, p.colour.Removed)
		}
		if f.b != absent {
			p.block("+ ", f.b, p.colour.Added)
		}
	}
}

func (p *diffPrinter) paintCell(_, column int, text string) string {
	return []func(string) string{p.colour.Bold, p.colour.Removed, p.colour.Added, plain}[column](text)
}

// fits reports whether a value can stand beside another one.
func fits(text string) bool {
	return columns.Width(text) <= diffCell && !strings.ContainsAny(text, "\n\t")
}

// block prints the lines of a value.
func (p *diffPrinter) block(mark, text string, paint func(string) string) {
	for line := range strings.SplitSeq(text, "\n") {
		p.line(paint, mark+line)
	}
}

// files prints which files differ.
func (p *diffPrinter) files(r diffReport) {
	for _, f := range r.Files {
		name := cmp.Or(f.Path, ".")
		switch f.Change {
		case "added":
			p.line(p.colour.Added, "+ "+termtext.OneLine(name)+"  "+entryText(f.B))
		case "removed":
			p.line(p.colour.Removed, "- "+termtext.OneLine(name)+"  "+entryText(f.A))
		default:
			a, b := entryText(f.A), entryText(f.B)
			text := a
			if a != b {
				text += " -> " + b
			}
			if f.Unshown != "" {
				text += ", " + f.Unshown
			}
			p.line(p.colour.Changed, "~ "+termtext.OneLine(name)+"  "+text)
		}
	}
	for _, f := range r.NotCompared {
		p.line(plain, fmt.Sprintf("? %s  %s, not compared: %s", termtext.OneLine(cmp.Or(f.Path, ".")), sizeText(f.Size), f.Why))
	}
}

// entryText describes an entry of a tree.
func entryText(e *compare.Entry) string {
	switch e.Type {
	case codalab.TargetDirectory:
		return fmt.Sprintf("directory of %s, %s", termtext.Count(int64(e.Files), "file"), sizeText(e.Size))
	case codalab.TargetLink:
		return "link to " + termtext.OneLine(e.Link)
	case codalab.TargetFile:
	}
	if e.Executable {
		return sizeText(e.Size) + " executable"
	}
	return sizeText(e.Size)
}

// sizeText is a size with a unit.
func sizeText(n int64) string {
	if n < 1024 {
		return termtext.Count(n, "byte")
	}
	return codalab.FormatSize(n)
}

// insides prints the values and the lines that differ.
func (p *diffPrinter) insides(files []fileDiff) {
	var all []fact
	for _, f := range files {
		shown := f.Values
		if !p.named {
			shown = shown[:min(len(shown), diffValues)]
		}
		all = append(all, valueFacts("/"+joinPath(p.a.target.Subpath, f.Path), shown)...)
	}
	if len(all) > 0 {
		p.line(plain, "")
	}
	p.facts(all)
	for _, f := range files {
		if !p.named {
			p.left(len(f.Values)-diffValues, "value", f.Path)
		}
	}
	for _, f := range files {
		if f.Diff == "" {
			continue
		}
		lines := strings.Split(strings.TrimSuffix(f.Diff, "\n"), "\n")
		shown := lines
		if !p.named {
			shown = lines[:min(len(lines), diffLines)]
		}
		p.line(plain, "")
		for i, line := range shown {
			p.out.WriteString(p.paintLine(i, line)(p.contents(line)) + "\n")
		}
		p.left(len(lines)-len(shown), "line", f.Path)
	}
}

// left prints the number of a file's lines or values that are not shown.
func (p *diffPrinter) left(n int, noun, at string) {
	if n > 0 {
		file := func(s diffSide) string { return joinPath(joinPath(shortUUID(s.bundle.UUID), s.target.Subpath), at) }
		p.line(plain, fmt.Sprintf("… %s more: cl diff %s %s", termtext.Count(int64(n), noun), file(p.a), file(p.b)))
	}
}

// paintLine returns the colour of a line of diff -u.
func (p *diffPrinter) paintLine(n int, line string) func(string) string {
	switch {
	case n < 2:
		return p.colour.Bold
	case strings.HasPrefix(line, "-"):
		return p.colour.Removed
	case strings.HasPrefix(line, "+"):
		return p.colour.Added
	case strings.HasPrefix(line, "@@"):
		return p.colour.Faint
	}
	return plain
}
