package container

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer/sifconfig"
)

// image is the SIF of a container, which is opened once: what it says of itself
// is read from the file that is run.
type image struct {
	file   *os.File
	close  func() error
	id     fileID
	config sifconfig.Config
}

// fileID tells a file from all others while somebody has it open.
type fileID struct{ Device, Inode uint64 }

// openImage opens a container's SIF, unless its caller has.
func (c Container) openImage() (_ *image, err error) {
	i := &image{file: c.Opened, close: func() error { return nil }}
	if i.file == nil {
		if i.file, err = openSIF(c.SIF); err != nil {
			return nil, err
		}
		i.close = i.file.Close
	}
	if i.id, err = idOf(i.file); err == nil {
		i.config, err = sifconfig.ReadFile(i.file)
	}
	if err != nil {
		return nil, errors.Join(err, i.close())
	}
	return i, nil
}

// openSIF opens an image's file. A pipe that has taken its place must not hold us.
func openSIF(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, fmt.Errorf("open the image: %w", err)
	}
	return f, nil
}

func idOf(f *os.File) (fileID, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fileID{}, fmt.Errorf("look at %s: %w", f.Name(), err)
	}
	return fileID{st.Dev, st.Ino}, nil
}

// holdImage mounts the caller's SIF in init's own mount namespace, so that its
// path leads to that file alone from then on. An init without mounts of its own
// looks at the path, and Apptainer follows it a moment later.
func (c *container) holdImage() error {
	f, err := openSIF(c.SIF)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // the mount holds it
	id, err := idOf(f)
	switch {
	case err != nil:
		return err
	case id != c.Image:
		return fmt.Errorf("the file %s was replaced by another while the container began", c.SIF)
	case c.plain():
		return nil
	}
	c.SIF, err = c.pinFile(f, "image")
	return err
}

// answerWait is how long an image may take to say that it is served.
const answerWait = time.Second

// imageIsLost says whether a mounted image is served no more. A command that
// finds its files gone may end before the end of squashfuse is known.
func imageIsLost() bool {
	answer := make(chan error, 1)
	go func() {
		var st unix.Statfs_t
		answer <- unix.Statfs(lowerDir, &st) // which FUSE asks whoever serves it
	}()
	wait := time.NewTimer(answerWait)
	defer wait.Stop()
	select {
	case err := <-answer:
		return errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.ECONNABORTED)
	case <-wait.C:
		return false
	}
}

// awaitLoss says why an image was lost.
func (c *container) awaitLoss() error {
	if c.imageLost != nil {
		return errImageLost
	}
	for d := range c.deaths {
		if d.pid == c.squashfuse {
			return c.lost(d)
		}
	}
	return errors.New("squashfuse ended unseen")
}
