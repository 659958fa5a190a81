package main

import (
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

func TestUserAddRefusesANameThatDiffersByCaseAlone(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ string, flags []string) {
		add := func(name string) (stderr string, code int) {
			_, errors, ended := start(t.Context(), "correct horse\n", append([]string{"user", "add", name}, flags...)...)
			code = ended()
			return errors.String(), code
		}
		if text, code := add("ann"); code != 0 {
			t.Fatalf("exit %d, %s", code, text)
		}
		if text, code := add("Ann"); code != program.ExitFailure || !strings.Contains(text, "add user Ann: there is a user ann, whose name differs by case alone: choose another name") {
			t.Errorf("exit %d, %s", code, text)
		}
	})
}
