package seccomp

import (
	"slices"

	"golang.org/x/sys/unix"
)

// node is a part of a decision about a system call: a verdict, or a question.
type node interface {
	appendTo(program []unix.SockFilter) []unix.SockFilter
}

// verdict is the final answer to a call, as a filter returns it.
type verdict uint32

// Verdicts.
const (
	allow verdict = unix.SECCOMP_RET_ALLOW
	// pretend makes the call succeed without effect.
	pretend verdict = unix.SECCOMP_RET_ERRNO
	eperm           = verdict(unix.SECCOMP_RET_ERRNO | unix.EPERM)
	enosys          = verdict(unix.SECCOMP_RET_ERRNO | unix.ENOSYS)
)

func (v verdict) appendTo(program []unix.SockFilter) []unix.SockFilter {
	return append(program, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: uint32(v)})
}

// question decides by a word of struct seccomp_data (seccomp(2)), of which it keeps the bits in
// mask.
type question struct {
	offset, mask uint32
	spans        []span // by from; the first begins at 0
}

// span is a range of values with the same decision. It ends before the next span.
type span struct {
	from uint32
	node node
}

// refine returns the spans of base, with other decisions for single values.
func refine(base []span, values map[uint32]node) []span {
	at := func(value uint32) node {
		if n, ok := values[value]; ok {
			return n
		}
		i := len(base) - 1
		for base[i].from > value {
			i--
		}
		return base[i].node
	}
	edges := make([]uint32, 0, len(base)+2*len(values))
	for _, s := range base {
		edges = append(edges, s.from)
	}
	for value := range values {
		edges = append(edges, value, value+1)
	}
	slices.Sort(edges)
	spans := make([]span, 0, len(edges))
	for _, from := range edges {
		if n := at(from); len(spans) == 0 || spans[len(spans)-1].node != n {
			spans = append(spans, span{from, n})
		}
	}
	return spans
}

func (q *question) appendTo(program []unix.SockFilter) []unix.SockFilter {
	program = append(program, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: q.offset})
	if q.mask != ^uint32(0) {
		program = append(program, unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: q.mask})
	}
	return appendSearch(program, q.spans)
}

// farthest is the longest conditional jump.
const farthest = 255

// appendSearch finds the span of the loaded word by halving. It uses only the instructions that the
// kernel can interpret in advance (kernel/seccomp.c: seccomp_is_const_allow). From Linux 5.11 on,
// the kernel then runs the filter no more for calls that are always allowed.
func appendSearch(program []unix.SockFilter, spans []span) []unix.SockFilter {
	if len(spans) == 1 {
		return spans[0].node.appendTo(program)
	}
	half, at := len(spans)/2, len(program)
	program = append(program, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: spans[half].from})
	program = appendSearch(program, spans[:half])
	if lower := len(program) - at - 1; lower <= farthest {
		program[at].Jt = uint8(lower) //nolint:gosec // at most farthest
	} else {
		program[at].Jf = 1
		program = slices.Insert(program, at+1, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JA, K: uint32(lower)}) //nolint:gosec // some hundred
	}
	return appendSearch(program, spans[half:])
}

// choose decides by the ABI of a call, and answers ENOSYS to calls by others.
func choose(abis []abi, decide func(abi) node) []unix.SockFilter {
	program := make([]unix.SockFilter, 0, 1024) // enough for two
	program = append(program, unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offsetOfAudit})
	for _, a := range abis {
		program = append(program,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: a.audit, Jt: 1},
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JA},
		)
		at := len(program)
		program = decide(a).appendTo(program)
		program[at-1].K = uint32(len(program) - at) //nolint:gosec // some hundred
	}
	return enosys.appendTo(program)
}
