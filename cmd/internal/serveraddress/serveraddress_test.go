package serveraddress_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cl-slurm/cl-slurm/cmd/internal/serveraddress"
)

func TestServerIsTheOneThatClUses(t *testing.T) {
	t.Parallel()
	const (
		config = `{"cli": {"default_address": "http://default/"}, "aliases": {"lab": "http://lab/"}}`
		state  = `{"sessions": {"default": {"address": "http://chosen"}, "other": {"address": "http://other"}}}`
	)
	for name, test := range map[string]struct {
		flag, config, state, want string
		env                       map[string]string
	}{
		"nobody has chosen":   {},
		"flag":                {flag: "http://flag/", config: config, state: state, want: "http://flag"},
		"flag with a name":    {flag: "lab", config: config, state: state, want: "http://lab"},
		"environment":         {env: map[string]string{"CL_SERVER": "lab"}, config: config, state: state, want: "http://lab"},
		"cl work":             {config: config, state: state, want: "http://chosen"},
		"cl work, by session": {env: map[string]string{"CODALAB_SESSION": "other"}, state: state, want: "http://other"},
		"configuration":       {config: config, want: "http://default"},
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
			getenv := func(name string) string {
				if name == "CODALAB_HOME" {
					return home
				}
				return test.env[name]
			}
			if got, err := serveraddress.Find(getenv, test.flag); err != nil || got != test.want {
				t.Errorf("%q, %v; want %q", got, err, test.want)
			}
		})
	}
}
