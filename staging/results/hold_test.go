package results

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/spool"
)

// quotaServer is a directoryServer with a disk quota, which refuses contents as our own server does.
type quotaServer struct {
	*directoryServer
	left int64
	// announced has the extents that clients told.
	announced []codalab.Extent
}

func (s *quotaServer) UploadContents(ctx context.Context, uuid string, o client.UploadOptions, body io.Reader) error {
	s.announced = append(s.announced, o.AtLeast)
	archive, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	if o.AtLeast.Space().Bytes > s.left || int64(len(archive)) > s.left {
		return &codalab.Error{
			Method: http.MethodPut, Status: http.StatusBadRequest,
			Message: "Upload failed: Can't save bundle, user disk quota exceeded. Bundle size greater than user's disk quota left: 20480",
		}
	}
	return s.directoryServer.UploadContents(ctx, uuid, o, bytes.NewReader(archive))
}

// Results that exceed their owner's disk quota stay where they are, and the server gets the output of their command.
// When there is room, all of them are delivered.
func TestResultsThatExceedTheQuotaStayAndTheirOutputIsSent(t *testing.T) {
	t.Parallel()
	r := left(t, map[string]string{"stdout": "line\n", "stderr": "warning\n", "model/weights": strings.Repeat("w", 1<<20)})
	server := &quotaServer{directoryServer: r.server, left: 20 << 10}
	r.collector.Contents = server
	must(t, os.Chmod(filepath.Join(r.runDir, "stdout"), 0)) // root in a container does not notice that
	for range 2 {                                           // each try is whole
		_, err := r.collect(spool.ResultsUpload)
		held, ok := errors.AsType[*HeldError](err)
		if !ok {
			t.Fatalf("collected: %v", err)
		}
		want := spool.HeldResults{Size: "1.0m in 4 entries", Left: "20k", Dir: r.runDir, Output: true}
		if diff := cmp.Diff(want, held.HeldResults()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"stderr", "stdout"}, r.uploaded()); diff != "" {
			t.Errorf("the server has (-want +got):\n%s", diff)
		}
		if r.sent("stdout") != "line\n" {
			t.Errorf("stdout is %q", r.sent("stdout"))
		}
	}
	if server.announced[0] != (codalab.Extent{Bytes: 1<<20 + 13, Entries: 4}) {
		t.Errorf("announced %+v", server.announced)
	}
	server.left = 2 << 20
	r.mustCollect(spool.ResultsUpload)
	if diff := cmp.Diff([]string{"model", "model/weights", "stderr", "stdout"}, r.uploaded()); diff != "" {
		t.Errorf("delivered (-want +got):\n%s", diff)
	}
	if left, err := os.ReadDir(r.layout.BundleDir(run1)); err != nil || len(left) != 0 {
		t.Errorf("beside the records are %v, %v", left, err)
	}
}

// A quota that is used up has no room for the output either. Of kept results, even the listing may not fit.
func TestResultsWithoutRoomForTheirOutputStay(t *testing.T) {
	t.Parallel()
	for mode, dir := range map[spool.ResultsMode]func(r *results) string{
		spool.ResultsUpload: func(r *results) string { return r.runDir },
		spool.ResultsKeep:   func(r *results) string { return r.layout.KeptDir(run1) },
	} {
		r := left(t, map[string]string{"stdout": "line\n"})
		r.collector.Contents = &quotaServer{directoryServer: r.server}
		_, err := r.collect(mode)
		held, ok := errors.AsType[*HeldError](err)
		if !ok || held.Held.Output || held.Held.Dir != dir(r) {
			t.Errorf("%s: %v", mode, err)
		}
		if _, err := os.Stat(filepath.Join(dir(r), "stdout")); err != nil {
			t.Error(err)
		}
	}
}

// A user gives an upload up. The end of the output is sent in its place, and nothing is removed. Results that are not
// uploaded are not given up.
func TestUploadThatIsGivenUpSendsTheOutput(t *testing.T) {
	t.Parallel()
	r := left(t, map[string]string{"stdout": "line\n", "stderr": "warning\n"})
	weights := filepath.Join(r.runDir, "weights")
	must(t, os.WriteFile(weights, nil, 0o600))
	must(t, os.Truncate(weights, 200<<30))                  // sparse
	must(t, os.Chmod(filepath.Join(r.runDir, "stdout"), 0)) // root in a container does not notice that
	giveUp := func(left int64, mode spool.ResultsMode, run codalab.RunBundle) (*spool.HeldResults, error) {
		r.collector.Contents = &quotaServer{directoryServer: r.server, left: left}
		return r.collector.GiveUp(t.Context(), run, r.runDir, mode)
	}
	run := codalab.RunBundle{UUID: run1}
	for left, sent := range map[int64]bool{1 << 20: true, 0: false} {
		held, err := giveUp(left, spool.ResultsUpload, run)
		must(t, err)
		if diff := cmp.Diff(&spool.HeldResults{Size: "200g in 3 entries", Dir: r.runDir, Output: sent}, held); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if diff := cmp.Diff([]string{"stderr", "stdout"}, r.uploaded()); diff != "" || r.sent("stdout") != "line\n" {
		t.Errorf("the server has (-want +got):\n%s", diff)
	}
	if _, err := os.Stat(weights); err != nil {
		t.Error(err)
	}
	if held, err := giveUp(1<<20, spool.ResultsKeep, run); held != nil || err != nil {
		t.Errorf("kept results: %v, %v", held, err)
	}
	r.collector.Store, run.Location = &Store{Dir: t.TempDir()}, &weights
	if held, err := giveUp(1<<20, spool.ResultsUpload, run); held != nil || err != nil {
		t.Errorf("results that the server's store takes: %v, %v", held, err)
	}
}
