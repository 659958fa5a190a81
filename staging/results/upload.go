package results

import (
	"io/fs"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// upload measures how far an upload is, in bytes of files. The archive's bytes that are
// sent are fewer, as they are compressed. So an upload counts the files before the one that
// is being packed, and of that one at most as much as was sent in all. As an io.Writer it
// counts what is sent.
type upload struct {
	total tally

	mu       sync.Mutex
	packed   tally
	last     int64 // bytes of the last entry in packed
	sent     int64
	transfer transfer.Transfer
}

// pack notes that an entry is packed next.
func (u *upload) pack(d fs.DirEntry) {
	info, err := d.Info()
	if err != nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last = u.packed.add(info)
}

// Write notes that bytes of the archive are sent.
func (u *upload) Write(p []byte) (int, error) {
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
