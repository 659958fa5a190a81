package account_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/cmd/internal/account"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

func TestServerIsTheNamedOneOrTheOneThatClUses(t *testing.T) {
	t.Parallel()
	const (
		config = `{"cli": {"default_address": "http://default/"}}`
		state  = `{"sessions": {"default": {"address": "http://chosen"}, "other": {"address": "http://other"}}}`
	)
	for name, test := range map[string]struct {
		flag, config, state, want string
		env                       map[string]string
	}{
		"nobody has named one":  {},
		"flag":                  {flag: "http://flag/", env: map[string]string{"CODALAB_SERVER": "http://env"}, state: state, want: "http://flag"},
		"environment":           {env: map[string]string{"CODALAB_SERVER": "http://env/", "CL_SERVER": "http://cl"}, state: state, want: "http://env"},
		"cl's environment":      {env: map[string]string{"CL_SERVER": "http://cl"}, state: state, want: "http://cl"},
		"cl work":               {config: config, state: state, want: "http://chosen"},
		"cl work, by session":   {env: map[string]string{"CODALAB_SESSION": "other"}, state: state, want: "http://other"},
		"cl's configuration":    {config: config, want: "http://default"},
		"a file that is broken": {config: config, state: "{", want: "http://default"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			for file, text := range map[string]string{"config.json": test.config, "cl-state.json": test.state} {
				if text == "" {
					continue
				}
				if err := os.WriteFile(filepath.Join(home, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			p := program.Process{Getenv: func(name string) string {
				if name == "CODALAB_HOME" {
					return home
				}
				return test.env[name]
			}}
			if got, err := account.Server(p, test.flag); got != test.want || (err == nil) != (test.want != "") {
				t.Errorf("%q, %v; want %q", got, err, test.want)
			}
		})
	}
}

func TestPasswordFileThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text string
		mode os.FileMode
		want string
	}{
		"two lines":     {"ann\nsecret\n", 0o600, ""},
		"readable":      {"ann\nsecret\n", 0o640, "may be read by others"},
		"one line":      {"ann\n", 0o600, "two lines"},
		"more lines":    {"ann\nsecret\n\n# a note\n", 0o400, ""},
		"only the name": {"ann\n\n", 0o600, "two lines"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "password")
			if err := os.WriteFile(path, []byte(test.text), test.mode); err != nil {
				t.Fatal(err)
			}
			got, err := account.ReadFile(path)
			switch {
			case test.want == "" && (err != nil || got != account.Login{User: "ann", Password: "secret"}):
				t.Errorf("%+v, %v", got, err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

func TestTokenFileThatIsNoneIsRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text string
		mode os.FileMode
		want string
	}{
		"one line":  {"token\n", 0o600, ""},
		"readable":  {"token\n", 0o604, "may be read by others"},
		"empty":     {"\n", 0o600, "one line"},
		"two lines": {"ann\nsecret\n", 0o600, "one line"},
		"a part":    {"clp_abcdefghij_secret\n", 0o600, "it is no whole token: a token begins with clp_"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(path, []byte(test.text), test.mode); err != nil {
				t.Fatal(err)
			}
			got, err := account.ReadToken(path)
			switch {
			case test.want == "" && (err != nil || got != "token"):
				t.Errorf("%q, %v", got, err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret")):
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}
