package spool

import (
	"fmt"

	"github.com/cl-slurm/cl-slurm/internal/diskspace"
)

// Space is the room that a disk has for ordinary users.
type Space = diskspace.Space

// Space measures the shared disk.
func (d Disk) Space() (Space, error) {
	s, err := diskspace.Of(d.Layout.spool())
	if err != nil {
		return Space{}, fmt.Errorf("measure the shared disk: %w", err)
	}
	return s, nil
}
