package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// CheckIn reports a worker and its runs, and waits for messages as long as the server holds
// the call, at most a minute. Most answers have no message. After an error the server may have
// handed out messages all the same. CheckIn logs messages that cannot be read.
func (c *Client) CheckIn(ctx context.Context, workerID string, in codalab.CheckIn) ([]codalab.Message, error) {
	// CodaLab's own server needs lists, not null.
	if in.Reports == nil {
		in.Reports = []codalab.RunReport{}
	}
	if in.Dependencies == nil {
		in.Dependencies = [][2]string{}
	}
	var body []byte
	err := c.do(ctx, call{
		method: "POST", path: path("workers", workerID, "checkin"), json: in, within: checkInWithin,
	}, &body)
	if c.auth != nil && codalab.IsStatus(err, http.StatusGone) {
		c.auth.noteReplaced(err)
	}
	if err != nil || len(body) == 0 {
		return nil, err
	}
	messages, unread, err := codalab.ParseMessages(body)
	c.logUnread(ctx, workerID, unread)
	return messages, err
}

// logUnread logs the unread messages of an answer. It logs an unknown type once, since a
// server may repeat the message.
func (c *Client) logUnread(ctx context.Context, workerID string, unread []codalab.Unread) {
	for _, u := range unread {
		about := []any{slog.String("worker", workerID), slog.String("type", string(u.Type)), slog.String("bundle", u.UUID)}
		if u.Err != nil {
			c.log.WarnContext(ctx, "cannot read a message of the server; it is ignored", append(about, slog.String("error", u.Err.Error()))...)
			continue
		}
		if _, known := c.unknown.LoadOrStore(u.Type, true); !known {
			c.log.WarnContext(ctx, "the server sends messages of an unknown type; they are ignored", about...)
		}
	}
}

// StartBundle claims a bundle for a worker. False means that the server has taken the bundle
// from the worker, which must not run it.
func (c *Client) StartBundle(ctx context.Context, workerID, uuid string, in codalab.StartBundle) (bool, error) {
	var mine bool
	err := c.do(ctx, call{
		method: "POST", path: path("workers", workerID, "start_bundle", uuid), json: in, within: answerWithin,
	}, &mine)
	return mine, err
}

// StartBundles claims several bundles for a worker in one call, at most codalab.MostStarts. It returns the answers in their
// order: each is what StartBundle would return. The error is an errors.ErrUnsupported if the server has no such call, as
// CodaLab's own.
func (c *Client) StartBundles(ctx context.Context, workerID string, in []codalab.BundleStart) ([]codalab.StartedBundle, error) {
	var out codalab.StartedBundles
	one := call{method: "POST", path: path("workers", workerID, "start_bundles"), json: codalab.StartBundles{Bundles: in}, within: answerWithin}
	err := c.do(ctx, one, &out)
	if codalab.IsStatus(err, http.StatusNotFound, http.StatusMethodNotAllowed) {
		return nil, fmt.Errorf("claim bundles: %w", errors.ErrUnsupported)
	}
	if err == nil && !slices.EqualFunc(in, out.Bundles, func(a codalab.BundleStart, b codalab.StartedBundle) bool { return a.UUID == b.UUID }) {
		err = c.noServer(one, http.StatusOK, nil)
	}
	return out.Bundles, err
}

// Reply replies to a read message with a target's description or an error.
func (c *Client) Reply(ctx context.Context, workerID string, socketID int64, r codalab.ReadReply) error {
	return c.do(ctx, call{
		method: "POST", path: path("workers", workerID, "reply", strconv.FormatInt(socketID, 10)),
		json: r, within: answerWithin,
	}, nil)
}

// ReplyData replies to a read message with a stream, in the form that codalab.ReadType describes.
// It returns when the server's reader has all of body, and fails when that reader has gone.
func (c *Client) ReplyData(ctx context.Context, workerID string, socketID int64, body io.Reader) error {
	return c.do(ctx, call{
		method: "POST", path: path("workers", workerID, "reply_data", strconv.FormatInt(socketID, 10)),
		query:  url.Values{"header_message": {"{}"}},
		stream: newUploadBody(body),
	}, nil)
}

// TellEnergy tells the energy of runs of a worker, which may have ended, at most codalab.MostEnergyRuns. The error is an
// errors.ErrUnsupported if the server keeps no energy: CodaLab's own does not.
func (c *Client) TellEnergy(ctx context.Context, workerID string, runs []codalab.RunEnergy) error {
	err := c.do(ctx, call{
		method: "POST", path: path("workers", workerID, "energy"), json: codalab.EnergyReport{Runs: runs}, within: answerWithin,
	}, nil)
	if codalab.IsStatus(err, http.StatusNotFound, http.StatusMethodNotAllowed) {
		return fmt.Errorf("tell the energy of runs: %w", errors.ErrUnsupported)
	}
	return err
}
