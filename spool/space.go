package spool

import (
	"fmt"

	"github.com/cl-slurm/cl-slurm/internal/diskspace"
)

// Space is how much room a disk has for who is not root.
type Space = diskspace.Space

// Space measures the shared disk.
func (d Disk) Space() (Space, error) {
	s, err := diskspace.Of(d.Layout.spool())
	if err != nil {
		return Space{}, fmt.Errorf("measure the shared disk: %w", err)
	}
	return s, nil
}
