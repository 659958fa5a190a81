package tarstream

import (
	"io"
	"sync"
)

const (
	// aheadAfter is the number of bytes that are read without a second goroutine: it would
	// not speed up a smaller archive.
	aheadAfter = 256 << 10
	chunkSize  = 256 << 10
	chunks     = 4
)

// readAhead reads a stream in a goroutine of its own, a bounded number of bytes ahead, so
// that one core decompresses while another writes files. pgzip's reader does that, too, but
// when a stream breaks off it drops the bytes of the last block, which readAhead delivers.
type readAhead struct {
	r io.Reader

	direct  int64       // bytes read before the goroutine began
	full    chan chunk  // chunks that it has read; nil before it runs
	empty   chan []byte // buffers that it may fill
	stopped chan struct{}
	running sync.WaitGroup

	current chunk
	rest    []byte // of current
}

type chunk struct {
	data []byte
	err  error // that followed the data
}

func (a *readAhead) Read(b []byte) (int, error) {
	if a.full == nil {
		if a.direct < aheadAfter {
			n, err := a.r.Read(b)
			a.direct += int64(n)
			return n, err
		}
		a.start()
	}
	for len(a.rest) == 0 {
		if a.current.err != nil {
			return 0, a.current.err
		}
		if a.current.data != nil {
			a.empty <- a.current.data // never blocks: it has room for all chunks
		}
		a.current = <-a.full
		a.rest = a.current.data
	}
	n := copy(b, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

func (a *readAhead) start() {
	a.full, a.empty, a.stopped = make(chan chunk, chunks), make(chan []byte, chunks), make(chan struct{})
	for range chunks {
		a.empty <- make([]byte, chunkSize)
	}
	a.running.Go(func() {
		for {
			select {
			case <-a.stopped:
				return
			case b := <-a.empty:
				n, err := fill(a.r, b[:chunkSize])
				a.full <- chunk{b[:n], err} // never blocks: it has room for all chunks
				if err != nil {
					return
				}
			}
		}
	})
}

// fill reads until b is full or the stream ends.
func fill(r io.Reader, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		m, err = r.Read(b[n:])
		n += m
	}
	return n, err
}

// close ends the goroutine. Once it returns, nothing reads the stream.
func (a *readAhead) close() {
	if a.full == nil {
		return
	}
	close(a.stopped)
	a.running.Wait()
}
