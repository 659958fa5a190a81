package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

// printFound prints what a command found: as JSON for programs, or else its text for people.
func printFound(p program.Process, asJSON bool, found any, text string) error {
	if asJSON {
		return printJSON(p.Stdout, found)
	}
	_, err := io.WriteString(p.Stdout, text)
	return err
}

func printJSON(w io.Writer, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	_, err = w.Write(append(data, '\n'))
	return err
}
