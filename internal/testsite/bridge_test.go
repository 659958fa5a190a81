package testsite

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func TestBridgeThatEndsWithoutAPartFailsItsStop(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile(filepath.Join("..", "..", "cmd", "internal", "assembly", "serve.go"))
	testenv.Must(t, err)
	if !strings.Contains(string(source), `"`+gaveUp) {
		t.Errorf("no bridge says %q", gaveUp)
	}
	for text, fails := range map[string]bool{"msg=stopped": false, "msg=\"" + gaveUp + "calls have not returned\"": true} {
		log, err := os.Create(filepath.Join(t.TempDir(), "log"))
		testenv.Must(t, err)
		s := &Site{log: log, bridge: &process{cmd: exec.Command("echo", text)}}
		s.bridge.cmd.Stdout = log
		testenv.Must(t, s.bridge.cmd.Start())
		s.bridge.ended = background.Go(func() { _ = s.bridge.cmd.Wait() })
		<-s.bridge.ended
		if err := s.StopBridge(); (err != nil) != fails {
			t.Errorf("a bridge that logs %q: StopBridge returns %v", text, err)
		}
		testenv.Must(t, log.Close())
	}
}
