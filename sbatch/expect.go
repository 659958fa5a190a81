package sbatch

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/command"
)

// Expected is the time and the nodes with which Slurm would start a job, by its present plan. Other jobs that end early, or that come with
// a higher priority, change it.
type Expected struct {
	Start     time.Time `json:"start"`
	Nodes     string    `json:"nodes,omitempty"`
	Partition string    `json:"partition,omitempty"`
}

// expectedLine matches sbatch's answer, a whole line (src/sbatch/sbatch.c: main). Its words differ a little between
// versions: 26.05 has an "a" behind the time.
var expectedLine = regexp.MustCompile(`Job \d+ to start at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?: a)? using \d+ processors on (?:nodes )?(\S+)(?: in partition (\S+))?\n`)

// Expect asks the controller, like Try, and returns the time and the nodes with which it would start the job; nil if its
// answer has none. The errors are Try's.
func (c *Client) Expect(ctx context.Context, r Request) (*Expected, error) {
	ctx, cancel := context.WithTimeout(ctx, c.queryTimeout())
	defer cancel()
	var said bytes.Buffer
	try := c.sbatch(r, "--test-only")
	try.Env = append(try.Env, "LC_ALL=C", "TZ=UTC", "SLURM_TIME_FORMAT=standard") // of this command: there is no job
	try.Stderr = &said
	ended := c.watch(testOnly)
	err := try.Run(ctx)
	if err == nil {
		ended(true)
		return parseExpected(said.String()), nil
	}
	if failed, ok := errors.AsType[*command.Error](err); ok {
		failed.Stderr = strings.TrimSpace(said.String())
	}
	e := trialError(r.Name, err)
	ended(e.Refused && !e.Retry)
	return nil, e
}

// parseExpected reads the answer of sbatch --test-only; nil if it names no start.
func parseExpected(stderr string) *Expected {
	found := expectedLine.FindStringSubmatch(stderr)
	if found == nil {
		return nil
	}
	start, err := time.ParseInLocation("2006-01-02T15:04:05", found[1], time.UTC)
	if err != nil {
		return nil
	}
	return &Expected{Start: start, Nodes: found[2], Partition: found[3]}
}
