package apptainer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/uuid"
	"github.com/sylabs/sif/v2/pkg/sif"

	"github.com/cl-slurm/cl-slurm/apptainer/flatten"
	"github.com/cl-slurm/cl-slurm/apptainer/sifconfig"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
)

// launchScript is Apptainer's (internal/pkg/build/assemblers/sif.go).
const launchScript = "#!/usr/bin/env run-singularity\n"

// sifWriter writes one SIF. The file system is its first object, so that a squashfs writer can
// write directly into the file.
type sifWriter struct {
	converter Converter
	img       source.Image
	config    *v1.ConfigFile
	flat      *flatten.Flattener
	layers    int64 // compressed bytes
}

func (w sifWriter) write(ctx context.Context, path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("create the SIF: %w", err)
	}
	err = w.writeTo(ctx, f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		return nil
	}
	if removeErr := os.Remove(path); !errors.Is(removeErr, fs.ErrNotExist) { // mksquashfs may have removed it
		err = errors.Join(err, removeErr)
	}
	return err
}

func (w sifWriter) writeTo(ctx context.Context, f *os.File) error {
	root := &squashfs{ctx: ctx, sifWriter: w}
	objects, err := w.objects(root)
	if err != nil {
		return err
	}
	id := uuid.NewSHA1(uuid.NameSpaceOID, []byte(w.img.Digest))
	created, err := sif.CreateContainer(f,
		sif.OptCreateWithID(id.String()),
		sif.OptCreateWithTime(w.config.Created.UTC()),
		sif.OptCreateWithLaunchScript(launchScript),
		sif.OptCreateWithCloseOnUnload(false),
		sif.OptCreateWithDescriptors(objects...))
	if root.err != nil {
		return root.err
	}
	if err != nil {
		return fmt.Errorf("write the SIF: %w", err)
	}
	err = w.addOthers(created)
	if err := errors.Join(err, created.UnloadContainer()); err != nil {
		return fmt.Errorf("write the SIF: %w", err)
	}
	return nil
}

// addOthers adds the files of other owners than root again, for containers in which only root has
// an id. Nobody could change them there.
func (w sifWriter) addOthers(created *sif.FileImage) error {
	stream, err := w.flat.Others()
	if err != nil || stream == nil {
		return err
	}
	object, err := sif.NewDescriptorInput(sif.DataGeneric, bytes.NewReader(stream), sif.OptObjectName(sifconfig.OthersName))
	if err != nil {
		return fmt.Errorf("describe the files of other owners: %w", err)
	}
	if err := created.AddObject(object, sif.OptAddWithTime(w.config.Created.UTC())); err != nil {
		return fmt.Errorf("add the files of other owners: %w", err)
	}
	return nil
}

// objects returns the SIF's objects, the file system first.
func (w sifWriter) objects(root *squashfs) ([]sif.DescriptorInput, error) {
	config, err := json.Marshal(w.config.Config)
	if err != nil {
		return nil, fmt.Errorf("write the image's configuration: %w", err)
	}
	definition := fmt.Sprintf("bootstrap: docker\nfrom: %s\n", w.img.PinnedReference())
	fileSystem, err := sif.NewDescriptorInput(sif.DataPartition, root,
		sif.OptPartitionMetadata(sif.FsSquash, sif.PartPrimSys, w.img.Architecture), sif.OptObjectName("rootfs"))
	definitionFile, definitionErr := sif.NewDescriptorInput(sif.DataDeffile, strings.NewReader(definition))
	ociConfig, configErr := sif.NewDescriptorInput(sif.DataGenericJSON, bytes.NewReader(config), sif.OptObjectName(sifconfig.OCIConfigName))
	if err := errors.Join(err, definitionErr, configErr); err != nil {
		return nil, fmt.Errorf("describe the SIF: %w", err)
	}
	return []sif.DescriptorInput{fileSystem, definitionFile, ociConfig}, nil
}

// squashfs is the file system as an object of a SIF. The sif package copies objects with io.Copy,
// which calls WriteTo with the SIF's file. So a squashfs writer learns the position, and the sif
// package the size.
type squashfs struct {
	sifWriter

	ctx context.Context //nolint:containedctx // for io.WriterTo, which has no context
	err error           // WriteTo's error, before the sif package wraps it
}

// Read is only for io.Reader; the sif package never calls it.
func (s *squashfs) Read([]byte) (int, error) { return 0, errors.ErrUnsupported }

// WriteTo writes the file system into the SIF itself, at w's position.
func (s *squashfs) WriteTo(w io.Writer) (n int64, err error) {
	defer func() { s.err = err }()
	f, ok := w.(*os.File)
	if !ok {
		return 0, errors.ErrUnsupported
	}
	offset, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, fmt.Errorf("write the file system: %w", err)
	}
	writer, err := chooseWriter(s.ctx, s.converter)
	if err != nil {
		return 0, err
	}
	return writer.write(s.ctx, f, offset, aboveLowWater{s.flat, f.Name(), s.layers, s.converter.Reserve})
}
