package config

import (
	"fmt"
	"slices"
	"strings"
)

// SbatchOption is an option of sbatch that a queue adds to its submissions, such as
// "--licenses=matlab".
type SbatchOption struct {
	Text string // a plain string type would do, but go-toml fills a list of these without UnmarshalText
}

// UnmarshalText reads an option. It refuses one that would break what the bridge promises of its
// jobs.
func (o *SbatchOption) UnmarshalText(text []byte) error {
	*o = SbatchOption{Text: string(text)}
	name, long := strings.CutPrefix(string(text), "--")
	name, _, _ = strings.Cut(name, "=")
	if !long || name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz-") != "" {
		return fmt.Errorf("%q: want options such as \"--licenses=matlab\", each a text of its own", text)
	}
	for _, own := range ownOptions() {
		if slices.Contains(own.names, name) {
			return fmt.Errorf("%q: --%s is refused here: %s", text, name, own.because)
		}
	}
	for _, own := range ownOptions() {
		for _, full := range own.names {
			// getopt_long(3) takes any beginning of an option's name that no other has.
			if strings.HasPrefix(full, name) {
				return fmt.Errorf("%q may be short for --%s, which is refused here (%s): write the option's whole name", text, full, own.because)
			}
		}
	}
	if name != "exclude" && strings.HasPrefix("exclude", name) { // the bridge adds nodes to it: sbatch.Request.Exclude
		return fmt.Errorf("%q may be short for --exclude: write the option's whole name", text)
	}
	return nil
}

// ownOption is a group of sbatch's options that no queue may set, and the reason.
type ownOption struct {
	names   []string
	because string
}

// ownOptions returns the options of sbatch that the bridge sets itself, that have a key of their
// own, or after which sbatch does not do what the bridge relies on (sbatch(1) of Slurm 22.05 to
// 26.05).
func ownOptions() []ownOption {
	return []ownOption{
		{[]string{"job-name", "comment"}, "the bridge recognizes its jobs by it"},
		{[]string{"cluster", "clusters"}, "a bridge sees the jobs of one cluster; write it as slurm.cluster"},
		{[]string{"uid", "gid"}, "the bridge sees the jobs of its own user only"},
		{[]string{"array"}, "each submission of the bridge is one job"},
		{[]string{"nodes", "ntasks"}, "each job is one task on one node"},
		{[]string{"requeue", "no-requeue"}, "only the bridge may start a bundle again; see retry_begun and max_attempts"},
		{[]string{"begin", "dependency", "hold"}, "Slurm's accounting does not show a job that may not start yet; to bound the number of jobs, set max_in_flight"},
		{[]string{"export", "export-file", "get-user-env"}, "the bridge states the environment of its jobs; to add to PATH, see path"},
		{[]string{"chdir", "error", "input", "open-mode", "output"}, "the bridge chooses the files of its jobs"},
		{[]string{"wrap", "external"}, "the bridge submits a script of its own"},
		{[]string{"signal"}, "the worker keeps the time limit itself, and takes most signals for the end of its job; see signal and kill_grace"},
		{[]string{"autocomplete", "help", "parsable", "test-only", "usage", "version", "wait"}, "sbatch has to answer with the job's number at once"},
		{[]string{"partition"}, "write it as the queue's partition"},
		{[]string{"account"}, "write it as the queue's account"},
		{[]string{"qos"}, "write it as the queue's qos"},
		{[]string{"wckey"}, "write it as the queue's wckey"},
		{[]string{"reservation"}, "write it as the queue's reservation"},
		{[]string{"constraint"}, "write it as the queue's constraint"},
		{[]string{"time", "time-min"}, "bundles ask for their time; see default_time and max_time"},
	}
}
