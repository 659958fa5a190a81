package worker

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/spool"
)

// secrets are the values of a bundle's secrets. They are in this process and in the command's environment, and nowhere
// else: not in a record, an argument or the environment of another program.
type secrets struct {
	values map[string]string
	// err is the reason why the values are not there.
	err error
}

// takeSecrets takes the secrets that a specification names, and removes their file. Only the worker that owns the attempt
// calls it.
func takeSecrets(a spool.Attempt, spec spool.Spec) secrets {
	if len(spec.Secrets) == 0 {
		return secrets{}
	}
	values, err := a.Layout().TakeSecrets(spec.Bundle, spec.Submission)
	if err != nil {
		return secrets{err: fmt.Errorf("read the values of the run's secrets on the shared disk: %w", err)}
	}
	for _, name := range spec.Secrets {
		if _, ok := values[name]; !ok {
			return secrets{err: fmt.Errorf("the shared disk has no value of the run's secret %s", name)}
		}
	}
	return secrets{values: values}
}

// env returns the variables for the command.
func (s secrets) env() []string {
	var env []string
	for _, name := range slices.Sorted(maps.Keys(s.values)) {
		env = append(env, name+"="+s.values[name])
	}
	return env
}

// leastMasked is the length of the shortest text that is masked: shorter ones occur by chance.
const leastMasked = 8

// masked returns the texts that the command's output must not have: each value, and each line of one, because programs
// print keys of several lines line by line.
func (s secrets) masked() []string {
	var texts []string
	for _, value := range s.values {
		for _, text := range append(strings.FieldsFunc(value, func(c rune) bool { return c == '\n' || c == '\r' }), value) {
			if len(text) >= leastMasked {
				texts = append(texts, text)
			}
		}
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}
