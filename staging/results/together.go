package results

import (
	"context"
	"fmt"
	"sync"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/batch"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

// SeveralUploads takes the results of several runs of a worker in one request, and returns the answers in their order. The
// error is an errors.ErrUnsupported if the server has no such requests. *client.Client is one.
type SeveralUploads interface {
	UploadResults(ctx context.Context, worker string, in []client.RunResults) ([]codalab.ResultsAnswer, error)
}

// Results within these limits are sent with those of other runs. An archive is in memory until the server has it.
const (
	tinyBytes   = 128 << 10
	tinyEntries = 100
)

// A request has at most mostArchives bytes of archives, which leaves room for what describes them.
const mostArchives = codalab.MostResultsBytes - codalab.MostResults<<12

// severalAtOnce is the number of requests of a worker at a time: the next archives are on their way while the server stores
// others.
const severalAtOnce = 2

// together are the requests for several runs, by worker. Its zero value is ready for use.
type together struct {
	made     sync.Once
	requests *batch.Optional[client.RunResults, codalab.ResultsAnswer]
}

// isTiny reports whether a request may have results of this size and those of other runs.
func (c *Collector) isTiny(run codalab.RunBundle, total tally) bool {
	_, ok := c.Contents.(SeveralUploads)
	return ok && (c.Store == nil || run.Location == nil) && total.bytes <= tinyBytes && total.entries <= tinyEntries
}

// CollectTogether is Collect for tiny results (Measure), of which one request has those of several runs. Unless it returns
// true, Collect has to collect them: the server has no such requests, or has refused these results, or did not answer. The
// server itself compares the bundle with the run.
func (c *Collector) CollectTogether(ctx context.Context, worker string, run codalab.RunBundle, runDir string) (stored bool) {
	several, ok := c.Contents.(SeveralUploads)
	if !ok {
		return false
	}
	requests, identity := c.requests(several), run.Identity().Lasting()
	if requests.Alone() || identity == "" {
		return false
	}
	root, err := openClosed(runDir)
	if err != nil {
		return false
	}
	defer func() { _ = root.Close() }() // only read
	var packed archive
	if err := tarstream.Pack(ctx, &packed, root, ".", tarstream.PackOptions{Exclude: exclusionOf(run).from(root)}); err != nil {
		return false
	}
	answer, err := requests.Do(ctx, worker, client.RunResults{ResultsOf: codalab.ResultsOf{UUID: run.UUID, Identity: identity}, Archive: packed.bytes})
	if err != nil || answer.Status != 0 {
		return false
	}
	if c.Sent != nil {
		c.Sent(len(packed.bytes))
	}
	from, err := root.Stat(".")
	if err == nil {
		err = c.supersede(run, from)
	}
	return err == nil
}

// archive has an archive of tiny results in memory. It takes no more than such results need, even if a file has grown since
// they were measured.
type archive struct{ bytes []byte }

// Write fails beyond the bound.
func (a *archive) Write(p []byte) (int, error) {
	if len(a.bytes)+len(p) > 2*tinyBytes {
		return 0, tarstream.ErrTooLarge
	}
	a.bytes = append(a.bytes, p...)
	return len(p), nil
}

// requests returns the requests for several runs.
func (c *Collector) requests(several SeveralUploads) *batch.Optional[client.RunResults, codalab.ResultsAnswer] {
	t := &c.together
	t.made.Do(func() {
		upload := func(ctx context.Context, worker string, in []client.RunResults) ([]codalab.ResultsAnswer, error) {
			answers, err := several.UploadResults(ctx, worker, in)
			if err != nil {
				return nil, fmt.Errorf("upload results: %w", err)
			}
			return answers, nil
		}
		t.requests = batch.NewOptional(c.Now, severalAtOnce, archivesFit, batch.Requests[client.RunResults, codalab.ResultsAnswer]{Several: upload})
	})
	return t.requests
}

// archivesFit bounds a request for several runs, which has each run once.
func archivesFit(in []client.RunResults, more client.RunResults) bool {
	bytes := len(more.Archive)
	for _, one := range in {
		if bytes += len(one.Archive); one.UUID == more.UUID {
			return false
		}
	}
	return len(in) < codalab.MostResults && bytes <= mostArchives
}
