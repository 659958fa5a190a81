package seccomp

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// systemCall is a call as a filter sees it.
type systemCall struct {
	audit, number uint32
	arguments     [6]uint64
	bigEndian     bool
}

// word returns the word at an offset of struct seccomp_data.
func (c systemCall) word(offset uint32) uint32 {
	switch offset {
	case offsetOfCall:
		return c.number
	case offsetOfAudit:
		return c.audit
	}
	argument := c.arguments[(offset-offsetOfArguments)/8]
	if (offset%8 == 0) != c.bigEndian {
		return uint32(argument)
	}
	return uint32(argument >> 32)
}

// decide runs a filter for one system call, as the kernel does (net/core/filter.c). It also returns
// the number of instructions.
func decide(tb testing.TB, program []unix.SockFilter, c systemCall) (answer verdict, instructions int) {
	tb.Helper()
	var a uint32
	jump := func(i unix.SockFilter, yes bool) int {
		if yes {
			return int(i.Jt)
		}
		return int(i.Jf)
	}
	for at := 0; at < len(program); at++ {
		instructions++
		switch i := program[at]; i.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			a = c.word(i.K)
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			a &= i.K
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			at += jump(i, a == i.K)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			at += jump(i, a >= i.K)
		case unix.BPF_JMP | unix.BPF_JA:
			at += int(i.K)
		case unix.BPF_RET | unix.BPF_K:
			return verdict(i.K), instructions
		default:
			tb.Fatalf("instruction %d has the code %#x", at, i.Code)
		}
	}
	tb.Fatal("the filter has no end")
	return 0, 0
}

// table is an ABI with its calls by name, as golang.org/x/sys has them.
type table struct {
	architecture string // Go's name of the kernel's
	audit        uint32
	calls        map[string]uint32
}

// tables reads the numbers of all calls of the known ABIs.
func tables(t *testing.T) (tables []table) {
	t.Helper()
	testenv.UsesMachine()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "golang.org/x/sys/unix").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, abi := range []struct {
		architecture, source string
		audit                uint32
	}{
		{"amd64", "amd64", unix.AUDIT_ARCH_X86_64},
		{"amd64", "386", unix.AUDIT_ARCH_I386},
		{"arm64", "arm64", unix.AUDIT_ARCH_AARCH64},
		{"arm64", "arm", unix.AUDIT_ARCH_ARM},
		{"riscv64", "riscv64", unix.AUDIT_ARCH_RISCV64},
		{"ppc64le", "ppc64le", unix.AUDIT_ARCH_PPC64LE},
		{"s390x", "s390x", unix.AUDIT_ARCH_S390X},
	} {
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "zsysnum_linux_"+abi.source+".go"))
		if err != nil {
			t.Fatal(err)
		}
		calls := map[string]uint32{}
		for _, m := range regexp.MustCompile(`SYS_(\w+)\s*=\s*(\d+)`).FindAllStringSubmatch(string(text), -1) {
			number, err := strconv.ParseUint(m[2], 10, 32)
			if err != nil {
				t.Fatal(err)
			}
			calls[strings.ToLower(m[1])] = uint32(number)
		}
		for _, name := range strings.Fields("syscall_mask arch_specific_syscall") { // no calls
			delete(calls, name)
		}
		tables = append(tables, table{abi.architecture, abi.audit, calls})
	}
	return tables
}

// filterOf returns the filter of a command on an architecture.
func filterOf(t *testing.T, name string, emulate Emulation) []unix.SockFilter {
	t.Helper()
	abis, err := architecture(name)
	if err != nil {
		t.Fatal(err)
	}
	return commandFilter(abis, emulate)
}

// words returns a set of words.
func words(text string) map[string]bool {
	set := map[string]bool{}
	for word := range strings.FieldsSeq(text) {
		set[word] = true
	}
	return set
}

// Calls about which the filter deliberately decides otherwise than Docker's profile.
const (
	numaCalls = "get_mempolicy mbind set_mempolicy set_mempolicy_home_node"
	// noKernelHas lists names in tables for which kernels have no call any more.
	noKernelHas = "afs_syscall bdflush break create_module ftime get_kernel_syms getpmsg gtty idle lock mpx multiplexer nfsservctl prof profil putpmsg query_module security stty timerfd tuxcall ulimit vserver"
	byArgument  = "clone personality socket"
)

// allowed.txt lists the calls that Docker's profile allows with Docker's default capabilities,
// whatever their arguments.
func TestCommandMayCallWhatDockersProfileAllows(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/moby-profiles-seccomp-v0.2.3/allowed.txt")
	if err != nil {
		t.Fatal(err)
	}
	allowed := words(string(text))
	numa, others, keys := words(numaCalls), words(noKernelHas+" "+byArgument), words("add_key request_key keyctl clone3")
	for _, tt := range tables(t) {
		filter := filterOf(t, tt.architecture, false)
		for name, number := range tt.calls {
			want := eperm
			switch {
			case others[name]:
				continue
			case number > lastCall, keys[name]:
				want = enosys
			case allowed[name], numa[name]:
				want = allow
			}
			if got, _ := decide(t, filter, systemCall{audit: tt.audit, number: number}); got != want {
				t.Errorf("on %s, ABI %#x, %s (%d) is answered %#x, want %#x", tt.architecture, tt.audit, name, number, got, want)
			}
		}
	}
}

func TestCallsOfX32AreThoseOfAMD64(t *testing.T) {
	t.Parallel()
	const x32 = 0x40000000
	filter := filterOf(t, "amd64", Root)
	for number := range uint32(600) {
		call := systemCall{audit: unix.AUDIT_ARCH_X86_64, number: number}
		want, _ := decide(t, filter, call)
		call.number |= x32
		if got, _ := decide(t, filter, call); got != want {
			t.Errorf("%d is answered %#x, want %#x", number, got, want)
		}
	}
	// arch/x86/entry/syscalls/syscall_64.tbl: the calls of x32 alone.
	for number, want := range map[uint32]verdict{512: allow, 520: allow, 528: eperm, 533: eperm, 547: allow, 548: enosys} {
		if got, _ := decide(t, filter, systemCall{audit: unix.AUDIT_ARCH_X86_64, number: x32 + number}); got != want {
			t.Errorf("%d is answered %#x, want %#x", number, got, want)
		}
	}
}

func TestUnknownABIsAreRefused(t *testing.T) {
	t.Parallel()
	for architecture, audit := range map[string]uint32{
		"amd64": unix.AUDIT_ARCH_AARCH64, "arm64": unix.AUDIT_ARCH_X86_64, "ppc64le": unix.AUDIT_ARCH_PPC,
		"riscv64": unix.AUDIT_ARCH_RISCV32, "s390x": unix.AUDIT_ARCH_S390,
	} {
		for number := range uint32(1000) {
			if got, _ := decide(t, filterOf(t, architecture, Root), systemCall{audit: audit, number: number}); got != enosys {
				t.Errorf("on %s, call %d is answered %#x", architecture, number, got)
			}
		}
	}
	if abis, err := architecture("sparc64"); err == nil || len(abis) > 0 {
		t.Errorf("sparc64: %v, %v", abis, err)
	}
}

func TestSomeCallsAreRefusedByTheirArguments(t *testing.T) {
	t.Parallel()
	const thread = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD | unix.CLONE_SETTLS
	const high = 1 << 32 // a bit that the kernel ignores
	for _, tt := range []struct {
		call     string
		argument uint64
		want     verdict
	}{
		{"clone", uint64(unix.SIGCHLD), allow},
		{"clone", thread, allow},
		{"clone", unix.CLONE_VFORK | unix.CLONE_VM | unix.CLONE_PIDFD, allow},
		{"clone", unix.CLONE_NEWUSER | uint64(unix.SIGCHLD), eperm},
		{"clone", high | unix.CLONE_NEWUSER, eperm},
		{"clone", unix.CLONE_NEWNS, eperm},
		{"clone", unix.CLONE_NEWPID, eperm},
		{"clone", unix.CLONE_NEWNET, eperm},
		{"clone", unix.CLONE_NEWIPC, eperm},
		{"clone", unix.CLONE_NEWUTS, eperm},
		{"clone", unix.CLONE_NEWCGROUP, eperm},
		{"socket", unix.AF_UNIX, allow},
		{"socket", unix.AF_INET6, allow},
		{"socket", unix.AF_NETLINK, allow},
		{"socket", unix.AF_ALG, eperm},
		{"socket", unix.AF_NFC, allow},
		{"socket", unix.AF_VSOCK, eperm},
		{"socket", high | unix.AF_VSOCK, eperm},
		{"socket", unix.AF_XDP, allow},
		{"personality", 0, allow},
		{"personality", 8, allow},
		{"personality", 0x20008, allow},
		{"personality", 0xffffffff, allow},
		{"personality", 0x0040000, eperm}, // ADDR_NO_RANDOMIZE
	} {
		for _, table := range tables(t) {
			call := systemCall{audit: table.audit, number: table.calls[tt.call], bigEndian: table.architecture == "s390x"}
			call.arguments[0] = tt.argument
			if call.bigEndian && tt.call == "clone" {
				call.arguments = [6]uint64{0, tt.argument}
			}
			if got, _ := decide(t, filterOf(t, table.architecture, false), call); got != tt.want {
				t.Errorf("on %s, ABI %#x, %s(%#x) is answered %#x, want %#x", table.architecture, table.audit, tt.call, tt.argument, got, tt.want)
			}
		}
	}
}

func TestRootIsEmulatedByEachABI(t *testing.T) {
	t.Parallel()
	owner := words("chown chown32 fchown fchown32 fchownat lchown lchown32 capset setfsgid setfsgid32 setfsuid setfsuid32 setgid setgid32 " +
		"setgroups setgroups32 setregid setregid32 setresgid setresgid32 setresuid setresuid32 setreuid setreuid32 setuid setuid32")
	for _, table := range tables(t) {
		plain, root := filterOf(t, table.architecture, false), filterOf(t, table.architecture, Root)
		for name, number := range table.calls {
			call := systemCall{audit: table.audit, number: number}
			want, _ := decide(t, plain, call)
			if owner[name] {
				want = pretend
			}
			if got, _ := decide(t, root, call); got != want {
				t.Errorf("on %s, ABI %#x, %s is answered %#x, want %#x", table.architecture, table.audit, name, got, want)
			}
		}
		for mode, want := range map[uint64]verdict{
			unix.S_IFCHR | 0o666: pretend, unix.S_IFBLK | 0o600: pretend,
			unix.S_IFREG | 0o644: allow, unix.S_IFIFO | 0o644: allow, unix.S_IFSOCK | 0o644: allow, 0o644: allow,
		} {
			for name, at := range map[string]int{"mknod": 1, "mknodat": 2} {
				number, has := table.calls[name]
				if !has {
					continue
				}
				call := systemCall{audit: table.audit, number: number, bigEndian: table.architecture == "s390x"}
				call.arguments[at] = mode
				if got, _ := decide(t, root, call); got != want {
					t.Errorf("on %s, ABI %#x, %s with mode %o is answered %#x, want %#x", table.architecture, table.audit, name, mode, got, want)
				}
			}
		}
	}
}

func TestEachABIRefusesKeysAndAllowsTheRest(t *testing.T) {
	t.Parallel()
	keys := words("add_key request_key keyctl")
	for _, table := range tables(t) {
		abis, err := architecture(table.architecture)
		if err != nil {
			t.Fatal(err)
		}
		for name, number := range table.calls {
			want := allow
			if keys[name] {
				want = enosys
			}
			if got, _ := decide(t, keysFilter(abis), systemCall{audit: table.audit, number: number}); got != want {
				t.Errorf("on %s, ABI %#x, %s is answered %#x, want %#x", table.architecture, table.audit, name, got, want)
			}
		}
	}
}

// Before Linux 5.11, and for calls with arguments that matter, the kernel runs the filter each time.
func TestFewInstructionsRunForEachCall(t *testing.T) {
	t.Parallel()
	for _, table := range tables(t) {
		filter := filterOf(t, table.architecture, Root)
		if len(filter) > 1000 {
			t.Errorf("on %s the filter has %d instructions", table.architecture, len(filter))
		}
		for name, number := range table.calls {
			if _, n := decide(t, filter, systemCall{audit: table.audit, number: number}); n > 24 {
				t.Errorf("on %s, ABI %#x, %s takes %d instructions", table.architecture, table.audit, name, n)
			}
		}
	}
}

func TestOnlyRootHasAnID(t *testing.T) {
	t.Parallel()
	for uidMap, want := range map[string]Emulation{
		"         0       1000          1\n":                                   Root,
		"         0       1000          1\n         1     100000      65536\n": false,
		"         0          0 4294967295\n":                                   false,
		"      1000       1000          1\n":                                   false,
		"":                                                                     false,
	} {
		if got := isOnlyRoot(uidMap); got != want {
			t.Errorf("%q: %v", uidMap, got)
		}
	}
}

func ExampleProgram() {
	program, err := Program(Root)
	fmt.Println(len(program)%8, len(program) < 8*unix.BPF_MAXINSNS, err)
	// Output: 0 true <nil>
}
