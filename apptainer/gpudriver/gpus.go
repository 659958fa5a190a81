package gpudriver

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// GPU is a GPU in the list of NVIDIA's driver.
type GPU struct {
	// BusID is its address on the PCI bus, in the spelling of /proc.
	BusID string
	// Minor is N of /dev/nvidiaN; -1 if the driver does not tell it.
	Minor int
	// UUID is nvidia-smi's; empty while the driver has not read it.
	UUID string
	// Model is the name of its model, such as "NVIDIA H200"; empty while the driver does not tell it.
	Model string
}

// GPUs reads the list of NVIDIA's driver in the host's /proc (the driver's README, "Proc interface":
// gpus/BUS-ID/information). It is in the order of the bus ids, in which nvidia-smi counts its indexes. A
// host without the driver has none.
func GPUs(proc string) ([]GPU, error) {
	files, err := filepath.Glob(filepath.Join(proc, "driver/nvidia/gpus/*/information"))
	if err != nil {
		return nil, fmt.Errorf("list the GPUs: %w", err)
	}
	var gpus []GPU
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("list the GPUs: %w", err)
		}
		g := GPU{BusID: filepath.Base(filepath.Dir(file)), Minor: -1}
		for line := range strings.Lines(string(text)) {
			name, value, _ := strings.Cut(line, ":")
			value = strings.TrimSpace(value)
			switch name {
			case "Device Minor":
				if n, err := strconv.Atoi(value); err == nil {
					g.Minor = n
				}
			case "Model":
				if value != "Unknown" {
					g.Model = value
				}
			case "GPU UUID":
				if !strings.Contains(value, "?") { // the driver has not read it yet
					g.UUID = value
				}
			}
		}
		gpus = append(gpus, g)
	}
	return gpus, nil
}
