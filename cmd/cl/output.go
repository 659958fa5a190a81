package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// printJSON prints a value as JSON.
func (c *cli) printJSON(v any) error { return c.Print(true, v, "") }

// printUUID prints the uuid of the one thing that a command made or changed.
func (c *cli) printUUID(uuid string) error {
	if c.asJSON {
		return c.printJSON(named{uuid})
	}
	return c.print(uuid)
}

// printUUIDs prints the uuids of several things, one in a line.
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

// tell prints what a command has done: v as JSON, or else a line for people.
func (c *cli) tell(v any, format string, args ...any) error {
	if c.asJSON {
		return c.printJSON(v)
	}
	return c.print(fmt.Sprintf(format, args...))
}

// say prints a line of what a command does, unless it prints JSON.
func (c *cli) say(format string, args ...any) error {
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

// warn prints a line for people on standard error: a warning, or what has become of something.
func (c *cli) warn(format string, args ...any) {
	if !c.quiet {
		fmt.Fprintf(c.Stderr, format+"\n", args...) //nolint:errcheck // there is nobody else to tell
	}
}

// note says on a terminal what cl does; scripts do not read it.
func (c *cli) note(format string, args ...any) {
	if _, ok := terminal(c.Stderr); ok {
		c.warn(format, args...)
	}
}

// orNumber returns err, or else prints the number that a search has asked for: None for a total of
// nothing.
func (c *cli) orNumber(err error, number json.RawMessage) error {
	text := strings.Trim(string(number), `"`)
	switch {
	case err != nil:
		return err
	case c.asJSON:
		return c.printJSON(number)
	case text == "null":
		text = "None"
	}
	return c.print(text)
}
