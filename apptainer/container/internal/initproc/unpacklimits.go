package initproc

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/container"
	"github.com/cl-slurm/cl-slurm/apptainer/sifconfig"
	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
	"github.com/cl-slurm/cl-slurm/internal/diskuse"
	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// unpackLimits bounds the unpacking of one image. Its squashfs may be hostile: a few kilobytes can describe
// petabytes, because files may share their blocks, and any number of directories, because names may share them.
type unpackLimits struct {
	image   int64 // the size of the squashfs
	dir     string
	shown   string // the directory in errors
	bytes   int64  // of disk that the files may take
	entries int64
	disk    diskspace.Space // before the unpacking
}

// mostTimesLarger is the ratio of an image's files to the image above which the image is to blame if its files fill
// a disk. Files of programs are two to five times as large.
const mostTimesLarger = 100

// limitUnpacking returns the limits for the SIF. It refuses an image that cannot fit: its files need at least as
// much room as the image, and the superblock has their number (linux/fs/squashfs/squashfs_fs.h:
// squashfs_super_block.inodes).
func (r *Root) limitUnpacking() (*unpackLimits, error) {
	head, size, err := r.readSuperblock()
	if err != nil {
		return nil, err
	}
	l := &unpackLimits{image: size, dir: RootDir, shown: r.Process.PrivateDir, bytes: sifconfig.MaxBytes, entries: sifconfig.MaxEntries}
	if n := int64(binary.LittleEndian.Uint32(head[4:])); superblockIsWhole(head, size) && n > l.entries {
		return nil, l.tooMany(n)
	}
	if l.disk, err = diskspace.Of(l.dir); err != nil {
		return nil, fmt.Errorf("find the free room: %w", err)
	}
	if l.disk.Free < l.image {
		return nil, fmt.Errorf("it takes more than %s, and %s has %s free", sizeText(l.image), r.Process.PrivateDir, sizeText(l.disk.Free))
	}
	return l, nil
}

// awaitUnpacked waits for the only child, which unpacks the SIF, and kills it if it exceeds the limits.
func (r *Root) awaitUnpacked(pid int, l *unpackLimits) (Death, error) {
	ctx, cancel := context.WithCancel(context.Background())
	exceeded := make(chan error, 1)
	watching := background.Go(func() {
		if err := l.watch(ctx); err != nil {
			exceeded <- err
		}
	})
	defer func() {
		cancel()
		<-watching
	}()
	for {
		select {
		case d := <-r.Process.Deaths:
			if d.PID == pid {
				r.Process.killAll() // no process is left; another child may follow
				return d, nil
			}
		case err := <-exceeded:
			r.Process.killAll()
			return Death{}, err
		case <-r.Process.Stop:
			return Death{}, errStopped
		}
	}
}

// watch returns an error when the unpacked files exceed the limits, and nil when ctx ends. The free room is asked
// for often, because that costs nothing. Counting files takes time, at most a third of it.
func (l *unpackLimits) watch(ctx context.Context) error {
	const every, countPause = 20 * time.Millisecond, time.Second
	for rest := countPause; pause.For(ctx, every) == nil; {
		full := l.isFull()
		if rest -= every; !full && rest > 0 {
			continue
		}
		began := time.Now() //nolint:forbidigo // the duration matters
		// Files that cannot be counted leave the other files' sum.
		sum, _ := diskuse.Count(ctx, diskuse.Tree{Dir: l.dir})
		if err := l.judge(sum, full); err != nil {
			return err
		}
		rest = max(countPause, 2*time.Since(began)) //nolint:forbidigo // as above
	}
	return nil
}

// isFull reports whether the disk has less than a tenth of its former free room, which stays to its other users.
func (l *unpackLimits) isFull() bool {
	const rest = 10
	now, err := diskspace.Of(l.dir)
	if err != nil {
		return false // unsquashfs notices it
	}
	return l.disk.Total > 0 && now.Free < l.disk.Free/rest || l.disk.Files > 0 && now.FreeFiles < l.disk.FreeFiles/rest
}

// judge returns an error if the files exceed a limit, or if the disk is full.
func (l *unpackLimits) judge(sum diskuse.Sum, full bool) error {
	switch {
	case sum.OnDisk > l.bytes:
		return container.RequestErrorf("the image's files take more than %s, the most that an image may have", sizeText(l.bytes))
	case sum.Entries > l.entries:
		return l.tooMany(sum.Entries)
	case full && sum.OnDisk/mostTimesLarger > l.image:
		return container.RequestErrorf("the image has %s, its files take more than %s, and there is no room for more", sizeText(l.image), sizeText(sum.OnDisk))
	case full:
		return l.noRoom(sum)
	}
	return nil
}

func (l *unpackLimits) tooMany(n int64) error {
	return container.RequestErrorf("the image has %d files and directories or more, and an image may have %d", n, l.entries)
}

// outOfRoom returns the error after the disk was full.
func (l *unpackLimits) outOfRoom(ctx context.Context) error {
	sum, _ := diskuse.Count(ctx, diskuse.Tree{Dir: l.dir}) // as in watch
	return l.judge(sum, true)
}

// noRoom returns an error for a disk that is too small for an image.
func (l *unpackLimits) noRoom(sum diskuse.Sum) error {
	return fmt.Errorf("there is no room for it in %s: of %s that were free, its files have taken %s", l.shown, sizeText(l.disk.Free), sizeText(sum.OnDisk))
}

func sizeText(bytes int64) string {
	if bytes < 10<<20 {
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}
