package client

import (
	"context"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// readyForResults fails unless the server would take a run's results. It also
// removes what an earlier upload that broke off has left in the bundle: with
// that, CodaLab's own server makes the run failed in the end
// (codalab/model/bundle_model.py: transition_bundle_finished), and nobody could
// tell whether the next upload failed too.
func (c *Client) readyForResults(ctx context.Context, uuid string) error {
	b, err := c.Bundle(ctx, uuid)
	switch {
	case err != nil:
		return err
	case b.UploadFailure() == "":
		return nil
	case b.State.Final(): // and takes no contents, until its worker reports it again
		return thrownAway("PUT", contentsPath("blob", codalab.Target{BundleUUID: uuid}), b.Bundle)
	}
	return c.forgetUploadFailure(ctx, uuid)
}

// keptResults fails if the server has thrown away what it had answered 200 to:
// an upload that was cut before, by a bridge that was killed for example, may
// fail there after a later one has succeeded, and takes its contents with it.
//
// It looks at the bundle, not at its contents: for those of a running bundle a
// server asks the bundle's worker.
func (c *Client) keptResults(ctx context.Context, uuid string) error {
	b, err := c.Bundle(ctx, uuid)
	if err == nil && b.UploadFailure() != "" {
		err = thrownAway("PUT", contentsPath("blob", codalab.Target{BundleUUID: uuid}), b.Bundle)
	}
	return err
}

// thrownAway is the error of a call about results that the server does not have.
func thrownAway(method, p string, b codalab.Bundle) error {
	return &codalab.Error{
		Method: method, Path: p,
		Message: "the server threw the uploaded results away (" + b.UploadFailure() + ")",
	}
}

// forgetUploadFailure removes the message of a failed upload from a bundle.
func (c *Client) forgetUploadFailure(ctx context.Context, uuid string) error {
	o, err := codalab.NewObject("bundles", uuid, map[string]any{
		"metadata": codalab.Metadata{"failure_message": "", "error_traceback": ""},
	})
	if err != nil {
		return err
	}
	in, err := codalab.ListDocument([]codalab.Object{o})
	if err != nil {
		return err
	}
	return c.do(ctx, call{method: "PATCH", path: "/bundles", json: in, within: answerWithin}, nil)
}
