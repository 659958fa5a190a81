package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// printJSON prints a value as JSON.
func (c *cli) printJSON(v any) error { return c.Print(true, v, "") }

// printUUID prints the uuid of the bundle or worksheet that a command made or changed.
func (c *cli) printUUID(uuid string) error {
	if c.asJSON {
		return c.printJSON(named{uuid})
	}
	return c.print(uuid)
}

// printUUIDs prints several uuids, one in a line.
func (c *cli) printUUIDs(uuids []string) error {
	if !c.asJSON {
		for _, uuid := range uuids {
			if err := c.print(uuid); err != nil {
				return err
			}
		}
		return nil
	}
	list := make([]named, 0, len(uuids))
	for _, uuid := range uuids {
		list = append(list, named{uuid})
	}
	return c.printJSON(list)
}

// orJSON returns err, or else prints v as JSON.
func (c *cli) orJSON(err error, v any) error {
	if err != nil {
		return err
	}
	return c.printJSON(v)
}

// printResult prints a command's result: v with --json, else a line of text.
func (c *cli) printResult(v any, format string, args ...any) error {
	if c.asJSON {
		return c.printJSON(v)
	}
	return c.print(fmt.Sprintf(format, args...))
}

// printUnlessJSON prints a line of text unless --json is set.
func (c *cli) printUnlessJSON(format string, args ...any) error {
	if c.asJSON {
		return nil
	}
	return c.print(fmt.Sprintf(format, args...))
}

// printLines prints lines.
func (c *cli) printLines(lines []string) error {
	for _, line := range lines {
		if err := c.print(line); err != nil {
			return err
		}
	}
	return nil
}

// print writes one line to standard output.
func (c *cli) print(parts ...string) error {
	_, err := io.WriteString(c.Stdout, strings.Join(parts, "")+"\n")
	if err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// warn prints a line on standard error.
func (c *cli) warn(format string, args ...any) {
	if !c.quiet {
		fmt.Fprintf(c.Stderr, format+"\n", args...)
	}
}

// contentsTo returns the writer for contents of files, which others have written: a terminal shows them with the
// characters escaped that would steer it, and a pipe or a file gets them as they are.
func contentsTo(stream io.Writer) io.Writer {
	if _, ok := terminal(stream); ok {
		return &termtext.Lines{To: stream}
	}
	return termtext.Raw(stream)
}

// printOnTerminal prints a progress message on standard error if that is a terminal.
func (c *cli) printOnTerminal(format string, args ...any) {
	if _, ok := terminal(c.Stderr); ok {
		c.warn(format, args...)
	}
}

// orNumber returns err, or else prints the number that a search returned, or the text or the object
// that .format makes of it. The total of no bundles is None.
func (c *cli) orNumber(err error, number json.RawMessage) error {
	if err != nil || c.asJSON {
		return c.orJSON(err, number)
	}
	value, err := codalab.DecodeExact(number)
	if err != nil {
		return fmt.Errorf("read the result of the search: %w", err)
	}
	return c.print(codalab.PythonStr(value))
}
