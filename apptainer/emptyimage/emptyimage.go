// Package emptyimage writes a SIF without a file, for a trial of containers on a host that has no image at hand.
//
// Its file system is a squashfs with an empty root directory, which takes 150 bytes and needs no program to make.
package emptyimage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/sylabs/sif/v2/pkg/sif"
)

// Write writes the SIF to a new file.
func Write(path string) (err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write an empty image: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	root, err := sif.NewDescriptorInput(sif.DataPartition, bytes.NewReader(squashfs()),
		sif.OptPartitionMetadata(sif.FsSquash, sif.PartPrimSys, runtime.GOARCH), sif.OptObjectName("rootfs"))
	if err != nil {
		return fmt.Errorf("write an empty image: %w", err)
	}
	image, err := sif.CreateContainer(f, sif.OptCreateWithCloseOnUnload(false), sif.OptCreateWithDescriptors(root))
	if err != nil {
		return fmt.Errorf("write an empty image: %w", err)
	}
	if err := image.UnloadContainer(); err != nil {
		return fmt.Errorf("write an empty image: %w", err)
	}
	return nil
}

// Parts of the format (Linux fs/squashfs/squashfs_fs.h).
const (
	magic        = 0x73717368
	blockLog     = 17
	gzip         = 1
	directory    = 1      // a directory's inode
	uncompressed = 0x8000 // in the length of a block of metadata
	none         = ^uint64(0)
	// plain means that inodes, data, fragments and ids are not compressed, that there are no fragments, and no
	// extended attributes.
	plain = 0x0001 | 0x0002 | 0x0008 | 0x0010 | 0x0200 | 0x0800
	// padded is the length of a device's block, to which mksquashfs fills a file system up.
	padded = 4096
)

// superblock is struct squashfs_super_block.
type superblock struct {
	Magic, Inodes, Time, BlockSize, Fragments             uint32
	Compression, BlockLog, Flags, IDs, Major, Minor       uint16
	Root, Used, IDTable, Attributes, InodeTable, DirTable uint64
	FragmentTable, ExportTable                            uint64
}

// inode is struct squashfs_dir_inode.
type inode struct {
	Type, Mode, UID, GID uint16
	Time, Number         uint32
	Block, Links         uint32
	Size, Offset         uint16
	Parent               uint32
}

// squashfs returns a file system with one directory, of root. Empty directories have the size 3 (Linux
// fs/squashfs/dir.c).
func squashfs() []byte {
	root := inode{Type: directory, Mode: 0o755, Number: 1, Links: 2, Size: 3, Parent: 2}
	s := superblock{
		Magic: magic, Inodes: 1, BlockSize: 1 << blockLog, Compression: gzip, BlockLog: blockLog, Flags: plain, IDs: 1, Major: 4,
		Attributes: none, FragmentTable: none, ExportTable: none,
	}
	s.InodeTable = uint64(binary.Size(s))                     //nolint:gosec // a small number
	s.DirTable = s.InodeTable + 2 + uint64(binary.Size(root)) //nolint:gosec // a small number
	ids := s.DirTable
	s.IDTable = ids + 2 + 4
	s.Used = s.IDTable + 8
	var b bytes.Buffer
	for _, part := range []any{
		s,
		uint16(uncompressed | binary.Size(root)), root, //nolint:gosec // a small number
		uint16(uncompressed | 4), uint32(0), // the id of root
		ids,
	} {
		_ = binary.Write(&b, binary.LittleEndian, part) // values of a fixed size, into memory
	}
	return append(b.Bytes(), make([]byte, padded-b.Len())...)
}
