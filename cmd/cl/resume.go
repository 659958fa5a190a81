package main

import (
	"strconv"

	"github.com/spf13/pflag"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// resumeFlag adds the flag --resume. It returns a function that puts the request into a run's metadata, if it was made.
// CodaLab's own cl has no such flag, but may give a run the tag.
func resumeFlag(flags *pflag.FlagSet) func(codalab.Metadata) {
	times := &spelled{kind: "times", spell: func(text string) (string, error) {
		n, err := codalab.ParseResumes(text)
		return strconv.Itoa(n), err
	}}
	flags.Var(times, "resume", "go on up to `N` times after a preemption, a node's failure or the time limit, with the files")
	return func(m codalab.Metadata) {
		if n, err := codalab.ParseResumes(times.text); err == nil { // else the flag is not given
			m.SetResumes(n)
		}
	}
}

// checkResumes refuses a tag that asks for resumptions in a way that no worker understands.
func checkResumes(m codalab.Metadata) error {
	if _, err := m.Resumes(); err != nil {
		return refusef("%s", err.Error())
	}
	return nil
}
