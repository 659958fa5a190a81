package client

import (
	"context"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// readyForResults fails unless the server would take a run's results. It also
// removes the failure message of an earlier upload from the bundle: a run that
// has one ends as failed on CodaLab's own server
// (codalab/model/bundle_model.py: transition_bundle_finished), and the message of
// the next upload's failure would look the same.
func (c *Client) readyForResults(ctx context.Context, uuid string) error {
	b, err := c.Bundle(ctx, uuid)
	switch {
	case err != nil:
		return err
	case b.UploadFailure() == "":
		return nil
	case b.State.Final(): // takes no contents until its worker reports it again
		return thrownAway(b.Bundle)
	}
	return c.forgetUploadFailure(ctx, uuid)
}

// keptResults fails if the server has thrown away the contents of an upload that
// it answered with 200. CodaLab's own server does so when an earlier upload of
// the same bundle, cut by the death of a bridge for example, fails only after the
// later one has succeeded.
//
// It looks at the bundle, not at its contents: for those of a running bundle a
// server asks the bundle's worker.
func (c *Client) keptResults(ctx context.Context, uuid string) error {
	b, err := c.Bundle(ctx, uuid)
	if err == nil && b.UploadFailure() != "" {
		err = thrownAway(b.Bundle)
	}
	return err
}

// thrownAway returns the error for a bundle: the server took its upload and did not keep
// the contents.
func thrownAway(b codalab.Bundle) error {
	return &codalab.Error{
		Method: "PUT", Path: contentsPath("blob", codalab.Target{BundleUUID: b.UUID}),
		Message: "the server threw the uploaded results away (" + b.UploadFailure() + ")",
	}
}

// forgetUploadFailure removes the message of a failed upload from a bundle.
func (c *Client) forgetUploadFailure(ctx context.Context, uuid string) error {
	in := codalab.NewDocument([]codalab.Object{codalab.NewObject("bundles", uuid, map[string]any{
		"metadata": codalab.Metadata{"failure_message": "", "error_traceback": ""},
	})})
	return c.do(ctx, call{method: "PATCH", path: "/bundles", json: in, within: answerWithin}, nil)
}
