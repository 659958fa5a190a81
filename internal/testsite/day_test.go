package testsite_test

import (
	"flag"
	"os"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
	"github.com/cl-slurm/cl-slurm/internal/transcript"
)

var update = flag.Bool("update", false, "write the answers of the day into docs/researchers.md")

// The guide for researchers is a day on a terminal. The test types each command of it, and the answer is the guide's.
func TestResearchersDayIsThatOfTheGuide(t *testing.T) {
	t.Parallel()
	const path = "../../docs/researchers.md"
	data, err := os.ReadFile(path)
	testenv.Must(t, err)
	s := own(t, testsite.Options{})
	shell := openTerminal(t, s)
	address := regexp.MustCompile(`http://127\.0\.0\.1:\d+`)
	var answers []string
	for _, step := range transcript.Parse(string(data)) {
		answer := shell.types(address.ReplaceAllString(step.Command, s.Server))
		answers = append(answers, answer)
		if !*update && !transcript.Same(step.Answer, answer) {
			t.Errorf("%s:%d: $ %s\n%s", path, step.Line, step.Command, cmp.Diff(step.Answer, answer))
		}
	}
	if len(answers) == 0 {
		t.Error("the guide has no sessions")
	}
	if *update {
		testenv.Must(t, os.WriteFile(path, []byte(transcript.Rewrite(string(data), answers)), 0o644))
	}
}
