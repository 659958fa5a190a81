package colour_test

import (
	"testing"

	"github.com/cl-slurm/cl-slurm/cmd/internal/colour"
	"github.com/cl-slurm/cl-slurm/codalab"
)

func TestColoursComeWhereTheyAreWanted(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		flag     colour.When
		env      map[string]string
		terminal bool
		want     colour.Palette
	}{
		{"terminal", "auto", map[string]string{"TERM": "xterm"}, true, true},
		{"pipe", "auto", map[string]string{"TERM": "xterm"}, false, false},
		{"dumb terminal", "auto", map[string]string{"TERM": "dumb"}, true, false},
		{"no TERM", "auto", nil, true, false},
		{"NO_COLOR", "auto", map[string]string{"TERM": "xterm", "NO_COLOR": "1"}, true, false},
		{"empty NO_COLOR", "auto", map[string]string{"TERM": "xterm", "NO_COLOR": ""}, true, true},
		{"NO_COLOR before CLICOLOR_FORCE", "auto", map[string]string{"TERM": "xterm", "NO_COLOR": "1", "CLICOLOR_FORCE": "1"}, true, false},
		{"the flag before NO_COLOR", "always", map[string]string{"NO_COLOR": "1"}, false, true},
		{"the flag before CLICOLOR_FORCE", "never", map[string]string{"TERM": "xterm", "CLICOLOR_FORCE": "1"}, true, false},
		{"CLICOLOR_FORCE in a pipe", "auto", map[string]string{"CLICOLOR_FORCE": "1"}, false, true},
		{"CLICOLOR_FORCE=0", "auto", map[string]string{"CLICOLOR_FORCE": "0"}, false, false},
		{"CLICOLOR=0", "auto", map[string]string{"TERM": "xterm", "CLICOLOR": "0"}, true, false},
	} {
		if got := colour.Decide(test.flag, func(name string) string { return test.env[name] }, test.terminal); got != test.want {
			t.Errorf("%s: colours are %v, want %v", test.name, got, test.want)
		}
	}
}

func TestEveryStateHasItsColour(t *testing.T) {
	t.Parallel()
	for state, want := range map[codalab.State]string{
		"ready": "\x1b[32mx\x1b[0m", "failed": "\x1b[31mx\x1b[0m", "killed": "\x1b[35mx\x1b[0m", "worker_offline": "\x1b[35mx\x1b[0m",
		"running": "\x1b[36mx\x1b[0m", "finalizing": "\x1b[36mx\x1b[0m", "created": "\x1b[33mx\x1b[0m", "staged": "\x1b[33mx\x1b[0m",
		"starting": "\x1b[33mx\x1b[0m", "preparing": "\x1b[33mx\x1b[0m", "uploading": "\x1b[33mx\x1b[0m", "making": "\x1b[33mx\x1b[0m",
		"": "x", "a new state": "x",
	} {
		if got := colour.Palette(true).State(state, "x"); got != want {
			t.Errorf("%s is %q, want %q", state, got, want)
		}
		if got := colour.Palette(false).State(state, "x"); got != "x" {
			t.Errorf("%s without colours is %q", state, got)
		}
	}
}

func TestWrongValueOfTheFlagIsRefused(t *testing.T) {
	t.Parallel()
	w := colour.Auto
	for _, value := range colour.Values() {
		if err := w.Set(value); err != nil || w.String() != value {
			t.Errorf("%s: %v", value, err)
		}
	}
	if err := w.Set("yes"); err == nil {
		t.Error("--color yes is taken")
	}
}
