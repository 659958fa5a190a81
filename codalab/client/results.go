package client

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// RunResults are the results of a run: Archive is a gzipped tar archive.
type RunResults struct {
	codalab.ResultsOf

	Archive []byte
}

// resultsWithin bounds a call with the results of several runs: at most codalab.MostResultsBytes, over a slow network.
const resultsWithin = 5 * time.Minute

// UploadResults replaces the contents of several runs that a worker has, within the bounds of package codalab, and returns
// the answers in their order. After an error the server may have stored some. The error is an errors.ErrUnsupported if the
// server has no such call, as CodaLab's own.
func (c *Client) UploadResults(ctx context.Context, workerID string, in []RunResults) ([]codalab.ResultsAnswer, error) {
	body, err := packResults(in)
	if err != nil {
		return nil, err
	}
	var out codalab.ResultsAnswers
	one := call{method: "POST", path: path("workers", workerID, "results"), tar: body, within: resultsWithin}
	err = c.do(ctx, one, &out)
	if codalab.IsStatus(err, http.StatusNotFound, http.StatusMethodNotAllowed) {
		return nil, fmt.Errorf("upload results: %w", errors.ErrUnsupported)
	}
	if err == nil && !slices.EqualFunc(in, out.Bundles, func(a RunResults, b codalab.ResultsAnswer) bool { return a.UUID == b.UUID }) {
		err = c.noServer(one, http.StatusOK, nil)
	}
	return out.Bundles, err
}

// packResults returns the body of a call.
func packResults(in []RunResults) ([]byte, error) {
	list := codalab.ResultsList{Bundles: []codalab.ResultsOf{}}
	for _, one := range in {
		list.Bundles = append(list.Bundles, one.ResultsOf)
	}
	index, err := json.Marshal(list)
	var body bytes.Buffer
	w := tar.NewWriter(&body)
	add := func(name string, data []byte) {
		if err == nil {
			err = w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(data))})
		}
		if err == nil {
			_, err = w.Write(data)
		}
	}
	add(codalab.ResultsIndex, index)
	for _, one := range in {
		add(codalab.ResultsName(one.UUID), one.Archive)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, fmt.Errorf("pack results: %w", err)
	}
	return body.Bytes(), nil
}
