package notify_test

import (
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/cmd/internal/notify"
)

func TestEachTerminalGetsTheNotificationThatItKnows(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		env  map[string]string
		want string
	}{
		{"no terminal's name", nil, "\a"},
		{"Emacs", map[string]string{"TERM": "dumb"}, "\a"},
		{"console of Linux", map[string]string{"TERM": "linux"}, "\a"},
		{"iTerm2, WezTerm, Ghostty, kitty", map[string]string{"TERM": "xterm-256color"}, "\a\x1b]9;a is ready\a"},
		{"GNOME's", map[string]string{"TERM": "xterm-256color", "VTE_VERSION": "7600"}, "\a\x1b]777;notify;cl;a is ready\a"},
		{"urxvt", map[string]string{"TERM": "rxvt-unicode-256color"}, "\a\x1b]777;notify;cl;a is ready\a"},
		{"foot", map[string]string{"TERM": "foot"}, "\a\x1b]777;notify;cl;a is ready\a"},
		{"in tmux", map[string]string{"TERM": "tmux-256color", "TMUX": "/tmp/tmux-1/default"}, "\a\x1bPtmux;\x1b\x1b]9;a is ready\a\x1b\\"},
		{"in screen", map[string]string{"TERM": "screen", "STY": "1.pts"}, "\a\x1bP\x1b]9;a is ready\a\x1b\\"},
	} {
		if got := notify.Sequence(func(name string) string { return test.env[name] }, "a is ready"); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// Messages of failed runs come from others.
func TestNotificationIsOneShortLineWithoutSequences(t *testing.T) {
	t.Parallel()
	getenv := func(name string) string { return map[string]string{"TERM": "xterm"}[name] }
	got := notify.Sequence(getenv, "a failed: \x1b]0;title\a\n"+strings.Repeat("学", 500))
	text := strings.TrimSuffix(strings.TrimPrefix(got, "\a\x1b]9;"), "\a")
	if strings.ContainsAny(text, "\x1b\a\n\r") || len(text) > 800 || !strings.HasSuffix(text, "…") {
		t.Errorf("%q", got)
	}
}
