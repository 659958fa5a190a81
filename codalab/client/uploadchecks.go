package client

import (
	"context"
	"net/http"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// checkBeforeUpload fails unless the server would accept a run's results. It also removes the
// failure message of an earlier upload from the bundle, for two reasons: CodaLab's own server
// makes a run with such a message failed (codalab/model/bundle_model.py:
// transition_bundle_finished), and a failure of the next upload would leave the same message.
func (c *Client) checkBeforeUpload(ctx context.Context, uuid string) error {
	b, err := c.Bundle(ctx, uuid)
	switch {
	case err != nil:
		return err
	case b.UploadFailure() == "":
		return nil
	case b.State.Final(): // the server accepts no contents until the worker reports the run again
		return discarded(b.Bundle)
	}
	return c.forgetUploadFailure(ctx, uuid)
}

// checkAfterUpload fails if the server has discarded the contents of an upload that it answered
// with 200. CodaLab's own server does so when an earlier upload of the same bundle, broken off
// by the death of a bridge for example, fails after the later one has succeeded.
//
// checkAfterUpload reads the bundle, not its contents: the server would ask the worker for the
// contents of a running bundle.
func (c *Client) checkAfterUpload(ctx context.Context, uuid string) error {
	b, err := c.Bundle(ctx, uuid)
	if err == nil && b.UploadFailure() != "" {
		err = discarded(b.Bundle)
	}
	return err
}

// discarded returns the error of an upload that the server accepted but did not keep. If the owner's disk quota was the
// reason, that is the refusal itself: CodaLab's own server makes the bundle failed when it refuses contents for the quota,
// even if the bundle's worker still has it (codalab/rest/bundles.py: _update_bundle_contents_blob).
func discarded(b codalab.Bundle) error {
	failed := &codalab.Error{
		Method: "PUT", Path: contentsPath("blob", codalab.Target{BundleUUID: b.UUID}),
		Status: http.StatusBadRequest, Message: b.UploadFailure(),
	}
	if !failed.OverDiskQuota() {
		failed.Status, failed.Message = 0, "the server threw the uploaded results away ("+failed.Message+")"
	}
	return failed
}

// forgetUploadFailure removes the message of a failed upload from a bundle.
func (c *Client) forgetUploadFailure(ctx context.Context, uuid string) error {
	in := codalab.NewDocument([]codalab.Object{codalab.NewObject("bundles", uuid, map[string]any{
		"metadata": codalab.Metadata{"failure_message": "", "error_traceback": ""},
	})})
	return c.do(ctx, call{method: "PATCH", path: "/bundles", json: in, within: answerWithin}, nil)
}
