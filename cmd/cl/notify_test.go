package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
)

// chat takes messages in Slack's shape. It refuses them as long as refuses is not 0.
type chat struct {
	refuses int
	mu      sync.Mutex
	texts   []string
}

func (c *chat) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var message struct {
		Text string `json:"text"`
	}
	if json.NewDecoder(r.Body).Decode(&message) != nil || r.URL.Path != "/services/T0/verysecret" {
		http.Error(w, "invalid_payload", http.StatusBadRequest)
		return
	}
	if c.refuses != 0 {
		http.Error(w, "no_service", c.refuses)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.texts = append(c.texts, message.Text)
}

// inChat starts a chat, and returns the address of its webhook.
func (c *chat) inChat(t *testing.T) string {
	t.Helper()
	site := httptest.NewServer(c)
	t.Cleanup(site.Close)
	return site.URL + "/services/T0/verysecret"
}

func TestEndOfAWaitIsToldToAChat(t *testing.T) {
	t.Parallel()
	two, three := uuidNumber(0)+" "+uuidNumber(1), "3 bundles"
	for _, test := range []struct {
		name   string
		states map[string][]string
		args   []string
		code   int
		want   string
	}{
		{"ready", map[string][]string{uuidNumber(0): {"running", "ready"}}, nil, 0, "r00(0x000000) ready"},
		{"failed", map[string][]string{uuidNumber(0): {"running", "failed"}}, nil, 1, "r00(0x000000) failed"},
		{"all", map[string][]string{
			uuidNumber(0): {"running", "ready"}, uuidNumber(1): {"running", "failed"}, uuidNumber(2): {"running", "running", gone},
		}, nil, 1, three + ": 1 of 3 ready, 1 failed, 1 removed\nr01(0x000000) failed\nr02(0x000000) removed"},
		{"first failure", map[string][]string{
			uuidNumber(0): {"running", "running"}, uuidNumber(1): {"running", "killed"}, uuidNumber(2): {"staged"},
		}, []string{"--first-failure"}, 1, three + ": 0 of 3 ready, 1 killed, 1 running, 1 waiting\nr01(0x000000) killed"},
		{"removed while it ran", map[string][]string{uuidNumber(0): {"running", "running", gone}}, nil, 1, "cl wait " + uuidNumber(0) + " gave up: NotFoundError: "},
		{"name of two", map[string][]string{uuidNumber(0): {"ready"}, uuidNumber(1): {"ready"}}, nil, 0, two + ": 2 of 2 ready"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var c chat
			s := &scene{states: test.states, env: map[string]string{"CL_NOTIFY_WEBHOOK": c.inChat(t)}}
			_, errs, err := play(t, s, append(test.args, "--notify", "webhook")...)
			if code := program.Code(t.Context(), err); code != test.code {
				t.Errorf("exit code %d, %v", code, err)
			}
			if len(c.texts) != 1 || !strings.HasPrefix(c.texts[0], strings.Replace(test.want, two, "2 bundles", 1)) {
				t.Errorf("the chat gets %q, want %q", c.texts, test.want)
			}
			if strings.Contains(errs, "webhook") {
				t.Errorf("cl tells %q", errs)
			}
		})
	}
}

func TestFailureToNotifyIsSaidAndKeepsTheExitCode(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]int{"ready": 0, "failed": 1} {
		c := chat{refuses: http.StatusNotFound}
		address := c.inChat(t)
		s := &scene{states: map[string][]string{uuidNumber(0): {state}}, env: map[string]string{"CL_NOTIFY_WEBHOOK": address}}
		_, errs, err := play(t, s, "--notify", "webhook")
		if code := program.Code(t.Context(), err); code != want {
			t.Errorf("%s: exit code %d, want %d", state, code, want)
		}
		host := strings.Split(address, "/")[2]
		if diff := cmp.Diff("cl: the webhook got no message: "+host+" answers 404 Not Found (no_service)\n", errs); diff != "" {
			t.Errorf("%s (-want +got):\n%s", state, diff)
		}
	}
}

func TestWhatCannotNotifyIsRefusedBeforeTheWait(t *testing.T) {
	t.Parallel()
	refused(t, []string{"wait", "a", "--notify", "fax"}, "--notify fax: want terminal, webhook or mail")
	refused(t, []string{"wait", "a", "--notify", "webhok"}, ": did you mean webhook?")
	refused(t, []string{"wait", "a", "--notify", "terminal"}, "--notify terminal needs a terminal")
	refused(t, []string{"wait", "a", "--notify", "terminal,webhook"}, "--notify terminal needs a terminal")
	refused(t, []string{"wait", "a", "--notify", "webhook"}, "needs the URL of a webhook in CL_NOTIFY_WEBHOOK, or in the file ")
	for _, address := range []string{"hooks.example/verysecret", "ftp://hooks.example/verysecret"} {
		s := &scene{states: map[string][]string{uuidNumber(0): {"ready"}}, env: map[string]string{"CL_NOTIFY_WEBHOOK": address}}
		_, _, err := play(t, s, "--notify", "webhook")
		if want := "UsageError: CL_NOTIFY_WEBHOOK: it is no address of a webhook: want https://HOST/PATH"; err == nil || err.Error() != want || s.calls > 0 {
			t.Errorf("%v after %d calls", err, s.calls)
		}
	}
}

func TestWebhookIsReadFromAFileThatOthersCannotRead(t *testing.T) {
	t.Parallel()
	var c chat
	home := t.TempDir()
	file := filepath.Join(home, "notify-webhook")
	if err := os.WriteFile(file, []byte(c.inChat(t)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	wait := func() error {
		s := &scene{states: map[string][]string{uuidNumber(0): {"ready"}}, env: map[string]string{"CODALAB_HOME": home}}
		_, _, err := play(t, s, "--notify", "webhook")
		return err
	}
	if err := wait(); err != nil || len(c.texts) != 1 {
		t.Errorf("%v, %q", err, c.texts)
	}
	if runtime.GOOS == "windows" {
		return
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := wait(); err == nil || !strings.Contains(err.Error(), "chmod 600 "+file) || len(c.texts) != 1 {
		t.Errorf("%v, %q", err, c.texts)
	}
}

func TestEndOfAWaitIsToldByTheTerminal(t *testing.T) {
	t.Parallel()
	s := newTransferSite(t, 1<<40)
	uuid := s.aRun(t, "train", "true")
	for _, env := range [][]string{{"TMUX=", "STY=", "VTE_VERSION="}, {"TMUX=/tmp/tmux", "STY=", "VTE_VERSION="}} {
		c := openConsole(t, 100, 10, append(s.consoleEnv(), env...), "wait", uuid, "--notify", "terminal")
		c.sees("staged")
		if strings.Contains(c.written.String(), "\a") {
			t.Error("the bell rings before the end")
		}
		s.ends(t, 0, "kill", uuid)
		c.ends(1)
		want := "\a\x1b]9;train(" + uuid[:8] + ") killed\a"
		if env[0] != "TMUX=" {
			want = "\a\x1bPtmux;\x1b\x1b]9;train(" + uuid[:8] + ") killed\a\x1b\\"
		}
		if strings.Count(c.written.String(), want) != 1 {
			t.Errorf("the terminal gets %q", c.written.String())
		}
		uuid = s.aRun(t, "train", "true")
	}
}
