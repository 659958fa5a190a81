package spotnotice

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// Azure asks for the notice by which Azure takes a Spot machine back, 30 seconds before or earlier ("Azure Metadata
// Service: Scheduled Events for Linux VMs"). The zero value asks Azure's service at the interval that Azure recommends.
type Azure struct {
	// Address is that of the metadata service.
	Address string
	Every   time.Duration
}

const (
	everyAzure = time.Second
	// withinAzure is the limit of a question. The first one switches the service on, which takes up to two minutes.
	withinAzure = 150 * time.Second

	azureName   = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
	azureEvents = "/metadata/scheduledevents?api-version=2020-07-01"
)

// Await returns the notice when it comes, or the error of ctx. A service that does not answer is asked again.
func (a Azure) Await(ctx context.Context) (Notice, error) {
	client := &http.Client{Timeout: withinAzure, Transport: &http.Transport{}} // no proxy reaches the service
	defer client.CloseIdleConnections()
	machine := ""
	for {
		notice, err := a.ask(ctx, client, &machine)
		if err == nil && notice.Action != "" {
			return notice, nil
		}
		if err := pause.For(ctx, cmp.Or(a.Every, everyAzure)); err != nil {
			return Notice{}, err
		}
	}
}

// ask returns the notice; an empty one if there is none yet. The events are those of all machines of a scale set, so that
// ask needs the name of this one.
func (a Azure) ask(ctx context.Context, client *http.Client, machine *string) (Notice, error) {
	if *machine == "" {
		name, err := a.get(ctx, client, azureName)
		if err != nil {
			return Notice{}, err
		}
		*machine = strings.TrimSpace(string(name))
	}
	body, err := a.get(ctx, client, azureEvents)
	if err != nil {
		return Notice{}, err
	}
	var said struct {
		Events []struct {
			Type      string   `json:"EventType"`
			Machines  []string `json:"Resources"`
			NotBefore string   `json:"NotBefore"`
		} `json:"Events"`
	}
	if err := json.Unmarshal(body, &said); err != nil {
		return Notice{}, errors.Join(errors.New("the metadata service answers with no list of events"), err)
	}
	for _, e := range said.Events {
		if (e.Type == "Preempt" || e.Type == "Terminate") && slices.Contains(e.Machines, *machine) {
			at, _ := http.ParseTime(e.NotBefore) // it is empty if the event has begun
			return Notice{Action: strings.ToLower(e.Type), Time: at}, nil
		}
	}
	return Notice{}, nil
}

func (a Azure) get(ctx context.Context, client *http.Client, path string) ([]byte, error) {
	body, status, err := (Watch{Address: a.Address}).send(ctx, client, http.MethodGet, path, "Metadata", "true")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("ask the metadata service: status %d", status)
	}
	return body, err
}
