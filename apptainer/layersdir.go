package apptainer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// layersDir is a directory with the layers of one image, in use by one conversion.
type layersDir struct {
	path string
	lock *os.File // may be nil
	// own is set if no later conversion can find the directory.
	own bool
}

const (
	// layersPrefix begins the names of these directories.
	layersPrefix = "layers-"
	// lockName is a file in it that a conversion locks while it uses the directory.
	lockName = "lock"
	// keepLayers is the time for which unused layers stay for the next conversion.
	keepLayers = 24 * time.Hour
)

var errInUse = errors.New("another conversion uses it")

// useLayersDir returns the directory below parent for an image's layers, which may have the layers
// of an earlier conversion. If another conversion of the image uses it, such as one with other
// settings, it returns a new directory. A parent that is not shared needs no lock.
func useLayersDir(parent, digest string, shared bool) (layersDir, error) {
	name := layersPrefix + strings.TrimPrefix(digest, "sha256:")
	d := layersDir{path: filepath.Join(parent, name)}
	if !shared {
		return d, nil
	}
	err := os.MkdirAll(parent, 0o700)
	for err == nil {
		if err = os.Mkdir(d.path, 0o700); err == nil || errors.Is(err, os.ErrExist) {
			d.lock, err = lockLayers(d.path)
		}
		if !errors.Is(err, os.ErrNotExist) {
			break
		}
		_, err = os.Stat(parent) // another process removed the directory: try again
	}
	if errors.Is(err, errInUse) {
		d.own = true
		d.path, err = os.MkdirTemp(parent, name+"-")
		if err == nil {
			d.lock, err = lockLayers(d.path)
		}
	}
	if err == nil {
		now := time.Now() //nolint:forbidigo // this clock sets the directories' ages
		err = os.Chtimes(d.path, now, now)
	}
	if err != nil {
		d.unlock()
		return d, fmt.Errorf("make a directory for its layers: %w", err)
	}
	return d, nil
}

// lockLayers locks a directory. It returns errInUse, or os.ErrNotExist if the directory is gone. On
// a disk without locks it succeeds without a lock.
func lockLayers(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.Join(errInUse, f.Close())
	}
	locked, err := f.Stat()
	if err == nil {
		var there os.FileInfo
		if there, err = os.Stat(path); err == nil && !os.SameFile(locked, there) {
			err = os.ErrNotExist // another process has removed the file, and perhaps made a new one
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (d layersDir) remove() error {
	if err := os.RemoveAll(d.path); err != nil {
		return fmt.Errorf("remove its layers: %w", err)
	}
	return nil
}

func (d layersDir) unlock() {
	if d.lock != nil {
		_ = d.lock.Close() // nothing was written
	}
}

var layersName = regexp.MustCompile(`^` + layersPrefix + `[0-9a-f]{64}(-[0-9]+)?$`)

// sweepLayers removes layers in dir that no conversion has used for keepLayers.
func sweepLayers(dir string, now time.Time) {
	left, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range left {
		info, err := e.Info()
		if err != nil || !info.IsDir() || !layersName.MatchString(e.Name()) || now.Sub(info.ModTime()) <= keepLayers {
			continue
		}
		d := layersDir{path: filepath.Join(dir, e.Name())}
		if d.lock, err = lockLayers(d.path); err == nil {
			_ = d.remove() // a later sweep tries again
			d.unlock()
		}
	}
}
