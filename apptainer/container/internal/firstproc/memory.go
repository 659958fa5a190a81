package firstproc

import (
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// memory is memory that Go does not manage, and that the first process has a copy of.
type memory struct {
	chunks [][]byte
	free   []byte // of the last one
	err    error
}

// chunkBytes is the size of a usual chunk.
const chunkBytes = 128 << 10

// alloc returns zeroed memory, aligned for any type. After an error it is of no use.
func (m *memory) alloc(size int) unsafe.Pointer {
	const align = 16
	size = (size + align - 1) &^ (align - 1)
	if size > len(m.free) {
		chunk, err := unix.Mmap(-1, 0, max(size, chunkBytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			m.err = os.NewSyscallError("mmap", err)
			chunk = make([]byte, size)
		} else {
			m.chunks = append(m.chunks, chunk)
		}
		m.free = chunk
	}
	at := unsafe.Pointer(unsafe.SliceData(m.free))
	m.free = m.free[size:]
	return at
}

// release gives the memory back.
func (m *memory) release() {
	for _, chunk := range m.chunks {
		_ = unix.Munmap(chunk) // it is a whole mapping
	}
	*m = memory{}
}

// put returns a copy of a value, which has no pointers to Go's memory.
func put[T any](m *memory, value T) *T {
	at := (*T)(m.alloc(int(unsafe.Sizeof(value))))
	*at = value
	return at
}

// putAll returns a copy of values, which have no pointers to Go's memory.
func putAll[T any](m *memory, values []T) []T {
	if len(values) == 0 {
		return nil
	}
	all := unsafe.Slice((*T)(m.alloc(len(values)*int(unsafe.Sizeof(values[0])))), len(values))
	copy(all, values)
	return all
}

// address returns the address of a copy of a text as a C string, which a zero byte would end early.
func (m *memory) address(text string) uintptr {
	if strings.ContainsRune(text, 0) && m.err == nil {
		m.err = fmt.Errorf("%q holds a zero byte", text)
	}
	return uintptr(unsafe.Pointer(unsafe.SliceData(putAll(m, append([]byte(text), 0)))))
}
