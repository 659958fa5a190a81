package codalab_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Scanners of code and logs find a program token by this pattern (docs/server.md).
func TestProgramTokenHasItsForm(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^clp_[a-z2-7]{10}_[A-Z2-7]{33}$`)
	seen := map[string]bool{}
	for range 100 {
		token, id := codalab.NewProgramToken()
		got, err := codalab.ProgramTokenID(token)
		if !form.MatchString(token) || got != id || err != nil || seen[id] || seen[token] {
			t.Fatalf("%s: id %q, %v", token, got, err)
		}
		seen[id], seen[token] = true, true
	}
}

func TestPartOfAProgramTokenIsNone(t *testing.T) {
	t.Parallel()
	token, _ := codalab.NewProgramToken()
	other := "A"
	if token[20] == 'A' {
		other = "B"
	}
	for _, bad := range []string{"", "secret", token[1:], token[:len(token)-1], token + "A", token + "\n", token[:20] + other + token[21:], strings.ToLower(token), strings.ToUpper(token)} {
		if id, err := codalab.ProgramTokenID(bad); !errors.Is(err, codalab.ErrProgramToken) || id != "" {
			t.Errorf("%q: id %q, %v", bad, id, err)
		}
	}
}
