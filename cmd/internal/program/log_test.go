package program

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// A program adds up the durations and compares the times of several hosts, whatever their time zones and the characters of
// foreign texts are.
func TestLinesOfAJSONLogHaveOneForm(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := Process{Stderr: termtext.NewWriter(&out)}.LogAs(LogJSON, false)
	berlin := time.FixedZone("CET", 3600)
	log.Debug("left out")
	log.Warn("an event", slog.Duration("took", 1500*time.Millisecond), slog.Time("since", time.Date(2026, 11, 28, 0, 30, 0, 0, berlin)),
		slog.Any("error", fmt.Errorf("submit: %w", errors.New("sbatch: \x1b[31mno\nsuch \u202epartition"))),
		slog.Int("attempt", 2), slog.Bool("accounting", true), slog.Any("objects", []string{"0x1", "0x2"}), slog.Attr{})
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%v: %s", err, out.Bytes())
	}
	text, _ := line["time"].(string)
	if at, err := time.Parse(time.RFC3339, text); err != nil || at.Location() != time.UTC {
		t.Errorf("time %q: %v", text, err)
	}
	delete(line, "time")
	if diff := cmp.Diff(map[string]any{
		"level": "WARN", "msg": "an event", "took": 1.5, "since": "2026-11-27T23:30:00Z", "error": "submit: sbatch: \x1b[31mno\nsuch \u202epartition",
		"attempt": 2.0, "accounting": true, "objects": []any{"0x1", "0x2"},
	}, line); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
