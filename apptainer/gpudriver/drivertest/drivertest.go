// Package drivertest imitates hosts with GPU drivers, for tests on machines without a GPU. It makes
// real shared libraries without functions, and a real cache of the dynamic linker that lists them.
package drivertest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Write writes a file below root, with its directories.
func Write(tb testing.TB, root, name, content string, mode os.FileMode) {
	tb.Helper()
	file := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), mode); err != nil {
		tb.Fatal(err)
	}
}

// Cache runs the machine's ldconfig, which makes root's /etc/ld.so.cache from the libraries in the
// given directories below root. Format is one of ldconfig(8)'s.
func Cache(tb testing.TB, root, format string, directories ...string) {
	tb.Helper()
	program, err := exec.LookPath("/sbin/ldconfig")
	if err != nil {
		tb.Skipf("no ldconfig to make a cache with: %v", err)
	}
	var list bytes.Buffer
	for _, dir := range directories {
		list.WriteString(dir + "\n")
	}
	Write(tb, root, "etc/ld.so.conf", list.String(), 0o644)
	cmd := exec.CommandContext(tb.Context(), program, "-r", root, "-c", format) //nolint:forbidigo // the system's own, in a test
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("ldconfig: %v: %s", err, out)
	}
}

// Library returns a shared library for this machine with the given soname and without symbols.
func Library(tb testing.TB, soname string) string {
	tb.Helper()
	return library(tb, soname, nil)
}

// ForeignLibrary returns such a library for another machine.
func ForeignLibrary(tb testing.TB, soname string) string {
	tb.Helper()
	return library(tb, soname, func(h *elf.Header64) { h.Machine = uint16(elf.EM_VAX) })
}

// library returns a library: the header, three program headers, the dynamic section, an empty
// symbol table and the names, all in one segment.
func library(tb testing.TB, soname string, change func(*elf.Header64)) string {
	tb.Helper()
	const (
		headers     = 64 + 3*56
		dynamicSize = 6 * 16
		symbols     = headers + dynamicSize
		names       = symbols + elf.Sym64Size
		pageSize    = 1 << 16
	)
	text := "\x00" + soname + "\x00"
	size := uint64(names + len(text))
	h := ownHeader(tb)
	h.Type, h.Entry, h.Shoff, h.Shnum, h.Shstrndx = uint16(elf.ET_DYN), 0, 0, 0, 0
	h.Phoff, h.Phentsize, h.Phnum = 64, 56, 3
	if change != nil {
		change(&h)
	}
	segment := func(kind elf.ProgType, at, size, align uint64) elf.Prog64 {
		return elf.Prog64{Type: uint32(kind), Flags: uint32(elf.PF_R | elf.PF_W), Off: at, Vaddr: at, Paddr: at, Filesz: size, Memsz: size, Align: align}
	}
	var b bytes.Buffer
	for _, part := range []any{
		h,
		segment(elf.PT_LOAD, 0, size, pageSize),
		segment(elf.PT_DYNAMIC, headers, dynamicSize, 8),
		elf.Prog64{Type: uint32(elf.PT_GNU_STACK), Flags: uint32(elf.PF_R | elf.PF_W)},
		[]elf.Dyn64{
			{Tag: int64(elf.DT_SONAME), Val: 1},
			{Tag: int64(elf.DT_STRTAB), Val: names},
			{Tag: int64(elf.DT_STRSZ), Val: uint64(len(text))},
			{Tag: int64(elf.DT_SYMTAB), Val: symbols},
			{Tag: int64(elf.DT_SYMENT), Val: elf.Sym64Size},
			{Tag: int64(elf.DT_NULL)},
		},
		elf.Sym64{},
		[]byte(text),
	} {
		if err := binary.Write(&b, binary.NativeEndian, part); err != nil {
			tb.Fatal(err)
		}
	}
	return b.String()
}

// ownHeader returns the header of the running program.
func ownHeader(tb testing.TB) (h elf.Header64) {
	tb.Helper()
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := binary.Read(io.LimitReader(f, 64), binary.NativeEndian, &h); err != nil {
		tb.Fatal(err)
	}
	return h
}
