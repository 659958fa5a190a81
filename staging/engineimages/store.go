package engineimages

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
	"github.com/cl-slurm/cl-slurm/internal/pause"
)

// record is an image that was brought into the store, or a foreign image that a holder needs.
type record struct {
	ID string `json:"id"`
	// References are those in the store that these workers have given the image. A foreign image has
	// none.
	References []string  `json:"refs,omitempty"`
	Bytes      int64     `json:"bytes"`
	Used       time.Time `json:"used"`
	// Holders maps each holder to its home.
	Holders map[cache.Holder]string `json:"holders,omitempty"`
}

// brought reports whether these workers brought the image.
func (r record) brought() bool { return len(r.References) > 0 }

// records is the content of the file, in the order of the images' arrival.
type records []record

func (all records) find(id string) *record {
	i := slices.IndexFunc(all, func(r record) bool { return r.ID == id })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// add returns the record of an image, and makes it if there is none.
func (all *records) add(id string) *record {
	if r := all.find(id); r != nil {
		return r
	}
	*all = append(*all, record{ID: id})
	return all.find(id)
}

// change reads the records, and writes them again if do has changed them and returns no error.
// During the call no other worker can change the file, so no image gets a holder.
func (im *Images) change(ctx context.Context, do func(all *records) (changed bool, err error)) error {
	im.mu.Lock()
	defer im.mu.Unlock()
	unlock, err := lockFile(ctx, im.RecordsPath+".lock")
	if err != nil {
		return fmt.Errorf("lock %s: %w", im.RecordsPath, err)
	}
	defer unlock()
	var all records
	if err := atomicfile.ReadJSON(im.RecordsPath, &all); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the records of pulled images: %w", err)
	}
	changed, err := do(&all)
	if err != nil || !changed {
		return err
	}
	if err := atomicfile.WriteJSON(im.RecordsPath, all); err != nil {
		return fmt.Errorf("write the records of pulled images: %w", err)
	}
	return nil
}

// lockEvery is the pause between two tries to lock a file.
const lockEvery = 20 * time.Millisecond

// lockFile locks a file by flock(2), as soon as no other program has locked it.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			if err = pause.For(ctx, lockEvery); err == nil {
				continue
			}
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return func() {
			// A child process that is just starting may still hold the file open.
			_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
			_ = f.Close() // closing it drops the lock, too
		}, nil
	}
}

// note records an image that was just pulled. before lists the images that the store had.
func (im *Images) note(ctx context.Context, w wanted, got storeImage, before map[string][]string) (storeImage, error) {
	had, there := before[got.ID]
	err := im.change(ctx, func(all *records) (bool, error) {
		im.fresh[w.full] = im.Now().Add(im.Remember)
		if r := all.find(got.ID); there && (r == nil || !r.brought()) {
			return false, nil // it is foreign
		}
		r := all.add(got.ID)
		for _, ref := range got.references() {
			if !slices.Contains(had, ref) && !slices.Contains(r.References, ref) {
				r.References = append(r.References, ref)
			}
		}
		r.Bytes, r.Used, got.brought = got.Size, im.Now(), true
		return true, nil
	})
	return got, err
}

// touch records a use of an image in the store.
func (im *Images) touch(ctx context.Context, got storeImage) (storeImage, error) {
	err := im.change(ctx, func(all *records) (bool, error) {
		r := all.find(got.ID)
		if r == nil || !r.brought() {
			return false, nil
		}
		r.Used, got.brought = im.Now(), true
		return true, nil
	})
	return got, err
}

// errRemoved means that an image was trimmed between its arrival and its use.
var errRemoved = errors.New("the image was removed just after its pull")

// hold protects an image for a holder. It also protects a foreign image, because another worker may
// be about to record that it has brought the image.
func (im *Images) hold(ctx context.Context, got storeImage, holder cache.Holder) error {
	return im.change(ctx, func(all *records) (bool, error) {
		if got.brought && all.find(got.ID) == nil {
			return false, errRemoved
		}
		if holder == "" {
			return false, nil
		}
		r := all.add(got.ID)
		if r.Holders == nil {
			r.Holders = map[cache.Holder]string{}
		}
		r.Holders[holder] = im.Home
		return true, nil
	})
}
