package sbatch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Details is a job in Slurm's records. A site's plugins may have changed the values of its submission.
type Details struct {
	Name    string
	Comment string
	// Submitted is the time at which the controller made the job, by the clock of its host.
	Submitted time.Time
	// Partition may list several, with commas, while the job is pending.
	Partition string
	Account   string
	QOS       string
	// Time is the limit; 0 if the job has none yet.
	Time time.Duration
}

// detailFields are the fields of parseDetails.
const detailFields = "|%V|%P|%a|%q|%l|%j|%k"

// Describe returns the details of one job that has not been purged; of an array, those of one of its tasks. It costs the
// controller two requests.
func (c *Client) Describe(ctx context.Context, id JobID) (Details, error) {
	op := "describe " + id.String()
	separator := "|" + rand.Text()[:8] + "|"
	out, err := c.query(ctx, op, c.onCluster("squeue", "--all", "--local", "--states=all", "--noheader",
		"--jobs="+id.String(), "--format="+strings.ReplaceAll(detailFields, "|", separator))...)
	if err != nil {
		return Details{}, err
	}
	d, err := parseDetails(out, separator)
	if err != nil {
		return Details{}, &Error{Op: op, Message: err.Error(), Err: err}
	}
	return d, nil
}

// parseDetails reads squeue's answer about one job. An array has several records. Of a task that was cancelled before it
// began, squeue prints nothing.
func parseDetails(out, separator string) (Details, error) {
	const perJob = 7
	f := strings.Split(out, separator)
	switch {
	case out == "":
		return Details{}, errors.New(invalidID) //nolint:staticcheck // the words of Slurm
	case len(f) == 1 || len(f)%perJob != 1 || strings.TrimSpace(f[0]) != "" || !strings.HasSuffix(out, "\n"):
		return Details{}, fmt.Errorf("cannot read %q as one job", shorten(out))
	}
	submitted, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil {
		return Details{}, fmt.Errorf("cannot read the time of submission %q", shorten(f[1]))
	}
	d := Details{Submitted: time.Unix(submitted, 0), Partition: f[2], Account: f[3], QOS: f[4], Name: f[6], Comment: strings.TrimSuffix(f[7], "\n")}
	if d.Comment == "(null)" {
		d.Comment = ""
	}
	if limit, err := ParseLimit(f[5]); err == nil { // else NOT_SET or INVALID
		d.Time = limit
	}
	return d, nil
}
