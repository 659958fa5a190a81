package plan

import (
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Waiting is a staged run that waits for a worker.
type Waiting struct {
	UUID, OwnerID string
	Resources     codalab.Resources
	// AsksDisk and AsksTime are set if the run itself requests them.
	AsksDisk, AsksTime bool
	// Parents has the uuid and the path of each dependency.
	Parents map[[2]string]bool
	// Priority orders the runs of one owner: higher first.
	Priority int64
	Created  time.Time
	// Status is the present staged_status.
	Status string
}

// NewWaiting returns a staged run that waits for a worker with these resources.
func NewWaiting(b Bundle, resources codalab.Resources) *Waiting {
	w := &Waiting{
		UUID: b.UUID, OwnerID: b.OwnerID, Resources: resources, Parents: map[[2]string]bool{},
		AsksDisk: b.Metadata.String("request_disk") != "", AsksTime: b.Metadata.String("request_time") != "",
		Priority: b.Metadata.Int("request_priority"), Created: b.Created, Status: b.Metadata.String("staged_status"),
	}
	for _, d := range b.Dependencies {
		w.Parents[[2]string{d.ParentUUID, d.ParentPath}] = true
	}
	return w
}
