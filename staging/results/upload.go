package results

import (
	"io/fs"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// upload measures the progress of an upload in bytes of files, although it sends fewer, compressed
// bytes. It counts the files before the one that is being packed, and of that one at most as much
// as was sent in total. As an io.Writer it counts the sent bytes.
type upload struct {
	total tally
	tell  func(bytes int) // of each piece; nil for nobody

	mu       sync.Mutex
	packed   tally
	last     int64 // bytes of the last entry in packed
	sent     int64
	transfer transfer.Transfer
}

// pack records the next entry to pack.
func (u *upload) pack(d fs.DirEntry) {
	info, err := d.Info()
	if err != nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last = u.packed.add(info)
}

// Write records sent bytes of the archive.
func (u *upload) Write(p []byte) (int, error) {
	if u.tell != nil {
		u.tell(len(p))
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sent += int64(len(p))
	return len(p), nil
}

func (u *upload) progress(now time.Time) transfer.Progress {
	u.mu.Lock()
	defer u.mu.Unlock()
	done := max(u.packed.bytes-u.last, min(u.sent, u.packed.bytes))
	u.transfer.SetBytes(min(done, u.total.bytes), u.total.bytes)
	return u.transfer.Progress(now)
}
