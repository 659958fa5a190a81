package testenv

import (
	"bufio"
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/background"
)

// Logging is a running program with a log in JSON on its standard error.
type Logging struct {
	*exec.Cmd

	mu    sync.Mutex
	lines []map[string]any
}

// StartLogging starts a program, and reads its log. A line that is not a JSON object with a level and a message fails the
// test, and so does one with a secret. The program is killed at the end of the test.
func StartLogging(t *testing.T, cmd *exec.Cmd, secrets ...string) *Logging {
	t.Helper()
	l := &Logging{Cmd: cmd}
	log, err := l.StderrPipe()
	Must(t, errors.Join(err, l.Start()))
	read := background.Go(func() {
		for lines := bufio.NewScanner(log); lines.Scan(); {
			line := map[string]any{}
			if err := json.Unmarshal(lines.Bytes(), &line); err != nil || line["level"] == nil || line["msg"] == nil {
				t.Errorf("%v: %s", err, lines.Bytes())
			}
			for _, secret := range secrets {
				if strings.Contains(lines.Text(), secret) {
					t.Errorf("a secret is in the log: %s", lines.Bytes())
				}
			}
			l.mu.Lock()
			l.lines = append(l.lines, line)
			l.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		_ = l.Process.Kill()
		<-read
		_ = l.Wait()
	})
	return l
}

// AwaitLine returns the log's last line with a message and, in the attribute key, a key of the configuration; an empty one
// stands for any.
func (l *Logging) AwaitLine(t *testing.T, msg, key string) map[string]any {
	t.Helper()
	var found map[string]any
	var seen []map[string]any
	Await(t, "the log says "+msg+" "+key, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		seen = l.lines
		for _, line := range l.lines {
			if line["msg"] == msg && (key == "" || line["key"] == key) {
				found = line
			}
		}
		return found != nil
	}, &seen)
	return found
}
