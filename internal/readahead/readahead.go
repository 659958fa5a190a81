// Package readahead reads a stream ahead of its reader, so that one core decompresses while another one
// uses the result.
package readahead

import (
	"io"
	"sync"
)

const (
	// after is the number of bytes that are read without a second goroutine: it would not speed up a
	// smaller stream.
	after     = 256 << 10
	chunkSize = 256 << 10
	chunks    = 4
)

// Reader reads a stream in a goroutine of its own, a bounded number of bytes ahead. Only one goroutine
// may use it. pgzip's reader does that, too, but when a stream breaks off it drops the bytes of the last
// block, which Reader delivers.
type Reader struct {
	r   io.Reader
	run func(read func())

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

// New returns a Reader of r. Its goroutine calls run, which calls read once and returns after that, for
// example with another priority of its thread.
func New(r io.Reader, run func(read func())) *Reader { return &Reader{r: r, run: run} }

// Read returns the data of the stream, and then its error.
func (a *Reader) Read(b []byte) (int, error) {
	if a.full == nil {
		if a.direct < after {
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

func (a *Reader) start() {
	a.full, a.empty, a.stopped = make(chan chunk, chunks), make(chan []byte, chunks), make(chan struct{})
	for range chunks {
		a.empty <- make([]byte, chunkSize)
	}
	a.running.Go(func() { a.run(a.readAll) })
}

func (a *Reader) readAll() {
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

// Stop ends the goroutine. Once it returns, nothing reads the stream. It waits for a Read of the stream
// that has begun.
func (a *Reader) Stop() {
	if a.full == nil {
		return
	}
	close(a.stopped)
	a.running.Wait()
}
