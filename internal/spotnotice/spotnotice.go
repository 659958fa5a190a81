// Package spotnotice waits for the notice by which a cloud takes a Spot machine back: EC2 two minutes before ([Watch]),
// Azure half a minute before or earlier ([Azure]).
//
// The instance's metadata service has the notice (EC2 user guide, Spot Instance interruption notices). Programs of the
// instance ask for it every five seconds, as AWS recommends: nobody sends it to them. A container on the instance's
// network, as those of AWS Batch are, reaches the service.
package spotnotice

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/pause"
)

const (
	address = "http://169.254.169.254"
	every   = 5 * time.Second
	within  = 2 * time.Second // the answer comes from the instance's own host
	life    = "21600"         // of a session, in seconds
	most    = 64 << 10        // bytes of an answer
)

// Notice is the notice.
type Notice struct {
	// Action is the fate of the instance: terminate, stop or hibernate.
	Action string    `json:"action"`
	Time   time.Time `json:"time"`
}

// Watch asks for the notice. The zero value asks EC2's service at AWS's interval.
type Watch struct {
	// Address is that of the metadata service.
	Address string
	Every   time.Duration
}

// Await returns the notice when it comes, or the error of ctx. A service that does not answer is asked again.
func (w Watch) Await(ctx context.Context) (Notice, error) {
	client := &http.Client{Timeout: within, Transport: &http.Transport{}} // no proxy reaches the service
	defer client.CloseIdleConnections()
	session := ""
	for {
		notice, err := w.ask(ctx, client, &session)
		if err == nil && notice.Action != "" {
			return notice, nil
		}
		if err := pause.For(ctx, cmp.Or(w.Every, every)); err != nil {
			return Notice{}, err
		}
	}
}

// ask returns the notice; an empty one if there is none yet.
func (w Watch) ask(ctx context.Context, client *http.Client, session *string) (Notice, error) {
	if *session == "" {
		// An instance that refuses sessions may answer without one.
		token, status, err := w.send(ctx, client, http.MethodPut, "/latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds", life)
		if err == nil && status == http.StatusOK {
			*session = string(token)
		}
	}
	body, status, err := w.send(ctx, client, http.MethodGet, "/latest/meta-data/spot/instance-action", "X-aws-ec2-metadata-token", *session)
	switch {
	case err != nil:
		return Notice{}, err
	case status == http.StatusNotFound:
		return Notice{}, nil
	case status != http.StatusOK:
		*session = "" // it may have ended
		return Notice{}, fmt.Errorf("ask for a Spot notice: status %d", status)
	}
	var notice Notice
	if err := json.Unmarshal(body, &notice); err != nil || notice.Action == "" {
		return Notice{}, errors.Join(errors.New("the metadata service answers with no Spot notice"), err)
	}
	return notice, nil
}

func (w Watch) send(ctx context.Context, client *http.Client, method, path, header, value string) ([]byte, int, error) {
	request, err := http.NewRequestWithContext(ctx, method, cmp.Or(w.Address, address)+path, http.NoBody)
	if err != nil {
		return nil, 0, fmt.Errorf("ask the metadata service: %w", err)
	}
	if value != "" {
		request.Header.Set(header, value)
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, 0, fmt.Errorf("ask the metadata service: %w", err)
	}
	defer func() { _ = answer.Body.Close() }() // only read
	body, err := io.ReadAll(io.LimitReader(answer.Body, most))
	if err != nil {
		return nil, 0, fmt.Errorf("ask the metadata service: %w", err)
	}
	return body, answer.StatusCode, nil
}
