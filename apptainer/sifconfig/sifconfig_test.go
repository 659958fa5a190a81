package sifconfig_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sylabs/sif/v2/pkg/sif"

	"github.com/cl-slurm/cl-slurm/apptainer/sifconfig"
)

// The offsets in a SIF of two numbers that control the memory of its reader: the number of objects,
// in the header, and the size of the second object, in its description.
const (
	descriptorsTotal = 88
	secondSize       = 4096 + 585 + 25
)

func TestSIFThatAsksForTooMuchMemoryIsRefused(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]struct {
		at    int64
		value uint64
	}{
		"it is not a SIF, or damaged: ": {descriptorsTotal, 1 << 61},
		"its header claims 4097 ob":     {descriptorsTotal, 4097},
		"its header claims 1844674":     {descriptorsTotal, 1<<64 - 1},
		"have 1099511627776 bytes":      {secondSize, 1 << 40},
		"have -1 bytes":                 {secondSize, 1<<64 - 1},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			file := makeSIF(t)
			f, err := os.OpenFile(file, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt(binary.LittleEndian.AppendUint64(nil, change.value), change.at); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := sifconfig.Read(file); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want one with %q", err, want)
			}
		})
	}
}

func TestSIFIsRead(t *testing.T) {
	t.Parallel()
	config, err := sifconfig.Read(makeSIF(t))
	if err != nil || config.Architecture != "amd64" || len(config.Env) != 1 || config.Env[0] != "A=b" {
		t.Errorf("%+v, %v", config, err)
	}
}

// makeSIF makes a SIF whose partition has no real file system.
func makeSIF(t *testing.T) string {
	t.Helper()
	root, err := sif.NewDescriptorInput(sif.DataPartition, bytes.NewReader([]byte("hsqs")),
		sif.OptPartitionMetadata(sif.FsSquash, sif.PartPrimSys, "amd64"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := sif.NewDescriptorInput(sif.DataGenericJSON, strings.NewReader(`{"Env":["A=b"]}`), sif.OptObjectName(sifconfig.OCIConfigName))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "image.sif")
	f, err := sif.CreateContainerAtPath(file, sif.OptCreateWithDescriptors(root, config))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.UnloadContainer(); err != nil {
		t.Fatal(err)
	}
	return file
}
