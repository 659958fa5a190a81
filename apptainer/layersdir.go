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

// layersDir is a directory for the layers of one image, in use by one conversion.
type layersDir struct {
	path string
	lock *os.File // nil for none
	// own says that it is of no use to a later conversion.
	own bool
}

const (
	// layersPrefix begins the names of directories with an image's layers.
	layersPrefix = "layers-"
	// lockName is a file in it that is locked while it is in use.
	lockName = "lock"
	// leftFor is how long layers that a conversion left are kept for the next one.
	leftFor = 24 * time.Hour
)

var errInUse = errors.New("another conversion uses it")

// useLayersDir makes a directory below parent, or takes what an earlier
// conversion of the image has left. Where another uses that, such as for another
// owner or with other settings, it is a new one. What is not shared with other
// conversions is not locked.
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
		if !errors.Is(err, os.ErrNotExist) { // else it was removed meanwhile
			break
		}
		_, err = os.Stat(parent)
	}
	if errors.Is(err, errInUse) {
		d.own = true
		d.path, err = os.MkdirTemp(parent, name+"-")
		if err == nil {
			d.lock, err = lockLayers(d.path)
		}
	}
	if err == nil {
		now := time.Now() //nolint:forbidigo // by which a directory is old
		err = os.Chtimes(d.path, now, now)
	}
	if err != nil {
		d.letGo()
		return d, fmt.Errorf("make a directory for its layers: %w", err)
	}
	return d, nil
}

// lockLayers locks a directory; os.ErrNotExist is one that is gone. Where the
// disk knows no locks the file is not locked.
func lockLayers(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.Join(errInUse, f.Close())
	}
	mine, err := f.Stat()
	if err == nil {
		var there os.FileInfo
		if there, err = os.Stat(path); err == nil && !os.SameFile(mine, there) {
			err = os.ErrNotExist // another has removed it, and perhaps made it anew
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// remove removes the directory.
func (d layersDir) remove() error {
	if err := os.RemoveAll(d.path); err != nil {
		return fmt.Errorf("remove its layers: %w", err)
	}
	return nil
}

// letGo lets others use it.
func (d layersDir) letGo() {
	if d.lock != nil {
		_ = d.lock.Close() // nothing was written
	}
}

var layersName = regexp.MustCompile(`^` + layersPrefix + `[0-9a-f]{64}(-[0-9]+)?$`)

// sweepLayers removes layers that conversions left in dir and none came for.
func sweepLayers(dir string, now time.Time) {
	left, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range left {
		info, err := e.Info()
		if err != nil || !info.IsDir() || !layersName.MatchString(e.Name()) || now.Sub(info.ModTime()) <= leftFor {
			continue
		}
		d := layersDir{path: filepath.Join(dir, e.Name())}
		if d.lock, err = lockLayers(d.path); err == nil {
			_ = d.remove() // else another time
			d.letGo()
		}
	}
}
