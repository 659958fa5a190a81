package results

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/batch"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
	"github.com/cl-slurm/cl-slurm/spool"
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

// aloneFor is the time for which a server without such requests is not asked for one again. It may be updated.
const aloneFor = 10 * time.Minute

// together are the requests for several runs, by worker. Its zero value is ready for use.
type together struct {
	mu      sync.Mutex
	workers map[string]*batch.Calls[client.RunResults, codalab.ResultsAnswer]
	// alone is the time until which no such request is made.
	alone time.Time
}

// CollectTogether is Collect for results that are so small that one request has those of several runs. tiny is false for
// others, of which nothing is sent. Unless it returns stored, Collect has to collect them: the server has no such requests,
// or has refused these results, or did not answer. The server itself compares the bundle with the run.
func (c *Collector) CollectTogether(ctx context.Context, worker string, run codalab.RunBundle, runDir string, mode spool.ResultsMode) (details string, tiny, stored bool) {
	several, ok := c.Contents.(SeveralUploads)
	if !ok || mode == spool.ResultsKeep || c.Store != nil && run.Location != nil {
		return "", false, false
	}
	root, err := openClosed(runDir)
	if err != nil {
		return "", false, false
	}
	defer func() { _ = root.Close() }() // only read
	x := exclusionOf(run)
	excludes := func(below string, d fs.DirEntry) bool {
		return x.excludes(place{dir: root, name: below, below: below}, d)
	}
	var counted upload
	visit := func(at place, info fs.FileInfo) error {
		if counted.add(at.below, info); counted.total.bytes > tinyBytes || counted.total.entries > tinyEntries {
			return tarstream.ErrTooLarge
		}
		return tarstream.CheckPath(at.below)
	}
	if err := (walker{x.excludes, visit}).walk(ctx, root); err != nil {
		return "", false, false
	}
	calls, identity := c.several(worker, several), run.Identity().Lasting()
	if calls == nil || identity == "" {
		return "", true, false
	}
	var archive bytes.Buffer
	if err := tarstream.Pack(ctx, &archive, root, ".", tarstream.PackOptions{Exclude: excludes}); err != nil || archive.Len() > 2*tinyBytes {
		return "", true, false
	}
	answer, err := calls.Do(ctx, client.RunResults{ResultsOf: codalab.ResultsOf{UUID: run.UUID, Identity: identity}, Archive: archive.Bytes()})
	if err != nil || answer.Status != 0 {
		return "", true, false
	}
	if c.Sent != nil {
		c.Sent(archive.Len())
	}
	from, err := root.Stat(".")
	if err == nil {
		err = c.supersede(run, from)
	}
	return counted.details(), true, err == nil
}

// several returns the requests for several runs of a worker; nil while there are none.
func (c *Collector) several(worker string, several SeveralUploads) *batch.Calls[client.RunResults, codalab.ResultsAnswer] {
	t := &c.together
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.Now().Before(t.alone) {
		return nil
	}
	calls := t.workers[worker]
	if calls == nil {
		calls = batch.New(severalAtOnce, archivesFit, func(ctx context.Context, in []client.RunResults) ([]codalab.ResultsAnswer, error) {
			answers, err := several.UploadResults(ctx, worker, in)
			if errors.Is(err, errors.ErrUnsupported) {
				t.mu.Lock()
				t.alone = c.Now().Add(aloneFor)
				t.mu.Unlock()
			}
			if err != nil {
				return nil, fmt.Errorf("upload results: %w", err)
			}
			return answers, nil
		})
		if t.workers == nil {
			t.workers = map[string]*batch.Calls[client.RunResults, codalab.ResultsAnswer]{}
		}
		t.workers[worker] = calls
	}
	return calls
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
