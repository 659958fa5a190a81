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

// launchScript is what Apptainer writes: internal/pkg/build/assemblers/sif.go.
const launchScript = "#!/usr/bin/env run-singularity\n"

// sifWriter writes one SIF. Its file system stands first, so that the squashfs
// writer can make the file and everything else is written after it.
type sifWriter struct {
	converter Converter
	image     source.Image
	config    *v1.ConfigFile
	flat      *flatten.Flattener
}

// write makes the file at path, whole and flushed.
func (w sifWriter) write(ctx context.Context, path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // a SIF holds no secrets, and its directory is the caller's
	if err != nil {
		return fmt.Errorf("create the SIF: %w", err)
	}
	err = w.fill(ctx, f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		return nil
	}
	if removeErr := os.Remove(path); !errors.Is(removeErr, fs.ErrNotExist) { // mksquashfs may have done so
		err = errors.Join(err, removeErr)
	}
	return err
}

func (w sifWriter) fill(ctx context.Context, f *os.File) error {
	root := &squashfs{ctx: ctx, sifWriter: w}
	objects, err := w.objects(root)
	if err != nil {
		return err
	}
	id := uuid.NewSHA1(uuid.NameSpaceOID, []byte(w.image.Digest))
	image, err := sif.CreateContainer(f,
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
	if err := image.UnloadContainer(); err != nil {
		return fmt.Errorf("write the SIF: %w", err)
	}
	return nil
}

// objects are what the SIF holds, the file system first.
func (w sifWriter) objects(root *squashfs) ([]sif.DescriptorInput, error) {
	config, err := json.Marshal(w.config.Config)
	if err != nil {
		return nil, fmt.Errorf("write the image's configuration: %w", err)
	}
	definition := fmt.Sprintf("bootstrap: docker\nfrom: %s\n", w.image.Pinned())
	var objects []sif.DescriptorInput
	for _, o := range []struct {
		kind sif.DataType
		data io.Reader
		opts []sif.DescriptorInputOpt
	}{
		{sif.DataPartition, root, []sif.DescriptorInputOpt{
			sif.OptPartitionMetadata(sif.FsSquash, sif.PartPrimSys, w.image.Architecture),
			sif.OptObjectName("rootfs"),
		}},
		{sif.DataDeffile, strings.NewReader(definition), nil},
		{sif.DataGenericJSON, bytes.NewReader(config), []sif.DescriptorInputOpt{sif.OptObjectName(sifconfig.OCIConfigName)}},
	} {
		in, err := sif.NewDescriptorInput(o.kind, o.data, o.opts...)
		if err != nil {
			return nil, fmt.Errorf("describe the SIF: %w", err)
		}
		objects = append(objects, in)
	}
	return objects, nil
}

// squashfs is the file system as an object of a SIF: the sif package copies
// its objects, which for an io.WriterTo means that it says where it wants to
// stand and is told what it got.
type squashfs struct {
	sifWriter

	ctx context.Context //nolint:containedctx // carried over io.WriterTo
	err error           // of WriteTo, without what the sif package says of it
}

// Read exists for io.Reader; the sif package never calls it.
func (s *squashfs) Read([]byte) (int, error) { return 0, errors.ErrUnsupported }

// WriteTo makes the file system in the SIF itself, at the position that w is
// at.
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
	t, err := findTool(s.ctx, s.converter)
	if err != nil {
		return 0, err
	}
	return t.write(s.ctx, f, offset, s.flat)
}
