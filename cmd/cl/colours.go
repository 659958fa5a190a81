package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/cl-slurm/cl-slurm/cmd/internal/colour"
	"github.com/cl-slurm/cl-slurm/cmd/internal/repaint"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// colourFlag adds --color to a command with colours.
func (c *cli) colourFlag(cmd *cobra.Command) {
	c.colour = colour.Auto
	cmd.Flags().Var(&c.colour, "color", "colours: auto (on a terminal, unless NO_COLOR is set), always or never")
	_ = cmd.RegisterFlagCompletionFunc("color", completeWords(colour.Values()...)) // the flag is there
}

// palette returns the colours of a stream. JSON has none.
func (c *cli) palette(stream io.Writer) colour.Palette {
	if c.asJSON {
		return false
	}
	fd, ok := terminal(stream)
	return colour.Decide(c.colour, c.Getenv, ok && colour.Enable(fd))
}

// screenWidth returns a function for the number of columns of a terminal, 80 if that does not tell it. The function is
// nil for other streams.
func screenWidth(stream io.Writer) func() int {
	fd, ok := terminal(stream)
	if !ok {
		return nil
	}
	return func() int {
		width, _, err := term.GetSize(fd)
		if err != nil || width <= 0 {
			return 80
		}
		return width
	}
}

// statusLine returns a line of standard error to be drawn again and again; nil if that is no terminal which can.
func (c *cli) statusLine() *repaint.Line {
	if t, ok := repaint.OnTerminal(c.Stderr, c.Getenv); ok {
		return t.Line()
	}
	return nil
}

// onTerminal narrows a table of bundles to the terminal, if it comes to one, and paints the states.
func (c *cli) onTerminal(t table, bundles []client.BundleInfo) table {
	if width := screenWidth(c.Stdout); width != nil {
		t.width = width()
	}
	p := c.palette(c.Stdout)
	if !p {
		return t
	}
	t.paint = func(row, column int, text string) string {
		if t.columns[column].name != "state" {
			return text
		}
		return p.State(bundles[row].State, text)
	}
	return t
}

// printPainted prints the lines of cl info, with the colour of a bundle's state.
func (c *cli) printPainted(lines []string, state codalab.State) error {
	p := c.palette(c.Stdout)
	if !p {
		return c.print(strings.Join(lines, "\n"))
	}
	if _, err := io.WriteString(termtext.Raw(c.Stdout), strings.Join(painted(lines, state, p), "\n")+"\n"); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// painted escapes the lines of cl info, and paints the state of the bundle.
func painted(lines []string, state codalab.State, p colour.Palette) []string {
	const heading = ": "
	out := make([]string, len(lines))
	for i, line := range lines {
		out[i] = termtext.Escape(line)
		if before, after, ok := strings.Cut(out[i], heading); ok && strings.TrimSpace(before) == "state" {
			out[i] = before + heading + p.State(state, after)
		}
	}
	return out
}
