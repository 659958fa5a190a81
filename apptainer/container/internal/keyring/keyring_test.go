package keyring

import (
	"errors"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// decide runs a filter for one system call, as the kernel does (net/core/filter.c).
func decide(t *testing.T, program []unix.SockFilter, audit, call uint32) (answer uint32) {
	t.Helper()
	var a uint32
	for at := 0; at < len(program); at++ {
		switch i := program[at]; i.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			a = map[uint32]uint32{0: call, 4: audit}[i.K]
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			a &= i.K
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			if a == i.K {
				at += int(i.Jt)
			} else {
				at += int(i.Jf)
			}
		case unix.BPF_RET | unix.BPF_K:
			return i.K
		default:
			t.Fatalf("instruction %d has the code %#x", at, i.Code)
		}
	}
	t.Fatal("the filter has no end")
	return 0
}

func TestEachWayToCallTheKernelRefusesKeysAndNothingElse(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	const x32 = 0x40000000
	refused := uint32(unix.SECCOMP_RET_ERRNO | unix.ENOSYS)
	// The tables of system calls in Linux: arch/*/**/syscall*.tbl, scripts/syscall.tbl.
	for _, tt := range []struct {
		architecture string
		audit        uint32
		from, to     uint32 // the only refused calls
	}{
		{"amd64", unix.AUDIT_ARCH_X86_64, 248, 250},
		{"amd64", unix.AUDIT_ARCH_X86_64, x32 + 248, x32 + 250},
		{"amd64", unix.AUDIT_ARCH_I386, 286, 288},
		{"amd64", unix.AUDIT_ARCH_AARCH64, 0, 1000},
		{"arm64", unix.AUDIT_ARCH_AARCH64, 217, 219},
		{"arm64", unix.AUDIT_ARCH_ARM, 309, 311},
		{"arm64", unix.AUDIT_ARCH_X86_64, 0, 1000},
		{"ppc64le", unix.AUDIT_ARCH_PPC64LE, 269, 271},
		{"ppc64le", unix.AUDIT_ARCH_PPC, 0, 1000},
		{"riscv64", unix.AUDIT_ARCH_RISCV64, 217, 219},
		{"riscv64", unix.AUDIT_ARCH_RISCV32, 0, 1000},
		{"s390x", unix.AUDIT_ARCH_S390X, 278, 280},
		{"s390x", unix.AUDIT_ARCH_S390, 0, 1000},
	} {
		program, err := filter(tt.architecture)
		if err != nil {
			t.Fatal(err)
		}
		for call := tt.from &^ (x32 - 1); call <= tt.from&^(x32-1)+1000; call++ {
			want := uint32(unix.SECCOMP_RET_ALLOW)
			if call >= tt.from && call <= tt.to {
				want = refused
			}
			if got := decide(t, program, tt.audit, call); got != want {
				t.Errorf("on %s, call %d of %#x is answered %#x, want %#x", tt.architecture, call, tt.audit, got, want)
			}
		}
	}
}

func TestNumbersAreThoseOfThisMachine(t *testing.T) {
	t.Parallel()
	want := [3]uint32{unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL}
	if ways := abis(runtime.GOARCH); len(ways) == 0 || ways[0].calls != want {
		t.Errorf("%v, want %v first", ways, want)
	}
}

func TestUnknownArchitectureIsAnError(t *testing.T) {
	t.Parallel()
	if program, err := filter("sparc64"); err == nil || slices.Contains(program, unix.SockFilter{}) {
		t.Errorf("%v, %v", program, err)
	}
}

func TestLeftKeyringsKeysAreNotFound(t *testing.T) {
	t.Parallel()
	runtime.LockOSThread() // never unlocked: the thread with these keyrings ends with the test
	if _, _, errno := unix.Syscall(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0); errno == unix.ENOSYS {
		t.Skip("needs a kernel with keys")
	}
	key, err := unix.AddKey("user", "cl-slurm-test", []byte("precious"), unix.KEY_SPEC_SESSION_KEYRING)
	if err != nil {
		t.Fatal(err)
	}
	find := func() (int, error) {
		return unix.KeyctlSearch(unix.KEY_SPEC_SESSION_KEYRING, "user", "cl-slurm-test", 0)
	}
	if found, err := find(); err != nil || found != key {
		t.Fatalf("found %d, %v; want %d", found, err, key)
	}
	if err := Leave(); err != nil {
		t.Fatal(err)
	}
	if found, err := find(); !errors.Is(err, unix.ENOKEY) {
		t.Errorf("after Leave found %d, %v", found, err)
	}
}
