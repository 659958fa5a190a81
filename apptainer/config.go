package apptainer

import "github.com/cl-slurm/cl-slurm/apptainer/sifconfig"

// ImageConfig is what running a SIF needs to know of it.
type ImageConfig = sifconfig.Config

// Config is sifconfig.Read, for who has this package anyway.
func Config(path string) (ImageConfig, error) {
	return sifconfig.Read(path)
}
