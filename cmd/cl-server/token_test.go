package main

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// statusWith asks a server for the user of a token.
func statusWith(t *testing.T, address, token string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/rest/user", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close() // nothing is read
	return resp.StatusCode
}

// An operator makes, lists and ends tokens while the server runs. Each step counts at once.
func TestTokensAreMadeListedAndEndedWhileItServes(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ string, flags []string) {
		at := func(words ...string) []string { return append(words, flags...) }
		does(t, "correct horse\n", at("user", "add", "lab-bridge", "--worker-for", "everybody")...)
		address, _, _ := serveAt(t.Context(), flags)
		stdout, stderr, code := start(t.Context(), "", at("token", "add", "lab-bridge", "--workers", "lab-*")...)
		ended := code()
		token := strings.TrimSuffix(stdout.String(), "\n")
		if ended != 0 || statusWith(t, address, token) != http.StatusOK {
			t.Fatalf("exit %d, the token %s: %s", ended, token, stderr)
		}
		id, err := codalab.ProgramTokenID(token)
		if err != nil || !regexp.MustCompile(`^token `+id+` of lab-bridge, for worker lab-\*, until 20\d\d-\d\d-\d\d\n$`).MatchString(stderr.String()) {
			t.Errorf("%v %s", err, stderr)
		}
		listed := does(t, "", at("token", "ls")...)
		if want := regexp.MustCompile(`(?m)^` + id + ` +lab-bridge +lab-\* +workers +20\d\d-\d\d-\d\d +20\d\d-\d\d-\d\d \d\d:\d\d +20\d\d-\d\d-\d\d$`); !want.MatchString(listed) || strings.Contains(listed, token) {
			t.Errorf("%s", listed)
		}
		var tokens []codalab.ProgramToken
		if err := json.Unmarshal([]byte(does(t, "", at("token", "ls", "lab-bridge", "--json")...)), &tokens); err != nil || len(tokens) != 1 || tokens[0].Access != "" {
			t.Errorf("%v %+v", err, tokens)
		}
		does(t, "", at("token", "add", "lab-bridge", "--manager", "--days", "0")...)
		if listed := does(t, "", at("token", "ls")...); !regexp.MustCompile(`host-\*, cl-worker-manager-\* +manager .* never +never`).MatchString(listed) {
			t.Errorf("%s", listed)
		}
		does(t, "", at("token", "rm", id)...)
		if got := statusWith(t, address, token); got != http.StatusUnauthorized {
			t.Errorf("the token that has just been ended: %d", got)
		}
		refuses(t, "there is no token "+id, at("token", "rm", id)...)
		refuses(t, "there is no user nobody", at("token", "add", "nobody", "--workers", "x")...)
		for _, words := range [][]string{{"token", "add", "lab-bridge"}, {"token", "add", "lab-bridge", "--workers", "*"}, {"token", "add", "lab-bridge", "--workers", "a", "--days", "-1"}, {"token", "rm"}} {
			_, stderr, code := start(t.Context(), "", at(words...)...)
			if got := code(); got != program.ExitUsage {
				t.Errorf("%s: exit %d, %s", words, got, stderr)
			}
		}
	})
}
