// Command keys attacks the kernel's keyrings as a hostile command would, for tests. It prints the
// kernel's answers.
//
//	keys within FILE NAME SECRET -- PROGRAM…
//	    run a program in a new session keyring with a key NAME, beside another such
//	    key in the user keyring; write their numbers to FILE
//	keys put NAME SECRET
//	    add a key to the session keyring, and print its number
//	keys try NAME|NUMBER…
//	    try each call that deals with keys, and read these keys
package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rings are the keyrings with names for every process.
var rings = map[string]int{
	"session":      unix.KEY_SPEC_SESSION_KEYRING,
	"user":         unix.KEY_SPEC_USER_KEYRING,
	"user-session": unix.KEY_SPEC_USER_SESSION_KEYRING,
}

// openToUser gives every process of the key's owner all rights on it.
const openToUser = 0x3f3f0000

func main() {
	runtime.LockOSThread() // each thread has its own session keyring
	var err error
	switch args := os.Args[2:]; os.Args[1] {
	case "within":
		err = within(args[0], args[1], args[2], args[4:])
	case "put":
		var key int
		key, err = put("session", args[0], args[1])
		fmt.Println(key)
	case "try":
		try(args)
	}
	if err != nil {
		fmt.Println("refused:", err)
		os.Exit(1)
	}
}

func put(ring, name, secret string) (key int, err error) {
	if key, err = unix.AddKey("user", name, []byte(secret), rings[ring]); err != nil {
		return 0, fmt.Errorf("add_key: %w", err)
	}
	if err := unix.KeyctlSetperm(key, openToUser); err != nil {
		return 0, fmt.Errorf("set its permissions: %w", err)
	}
	// The kernel then removes the key, which nothing else does.
	_, err = unix.KeyctlInt(unix.KEYCTL_SET_TIMEOUT, key, 300, 0, 0)
	return key, err
}

func within(file, name, secret string, program []string) error {
	// A null pointer requests a keyring without a name.
	if _, _, errno := unix.Syscall(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0); errno != 0 {
		return errno
	}
	session, err := put("session", name, secret)
	if err != nil {
		return err
	}
	// Only a key that can be reached from the session's keyring belongs to this process.
	if _, err := unix.KeyctlInt(unix.KEYCTL_LINK, rings["user"], rings["session"], 0, 0); err != nil {
		return err
	}
	user, err := put("user", name, secret)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, fmt.Appendf(nil, "%d %d\n", session, user), 0o644); err != nil {
		return err
	}
	return syscall.Exec(program[0], program, os.Environ())
}

// x32 marks a call of the ABI of this name (arch/x86/include/uapi/asm/unistd.h).
const x32 = 0x40000000

func try(wanted []string) {
	bits := map[string]uintptr{runtime.GOARCH: 0}
	if runtime.GOARCH == "amd64" {
		bits["x32"] = x32
	}
	for abi, bit := range bits {
		tryABI(abi, bit, wanted)
	}
}

func tryABI(abi string, bit uintptr, wanted []string) {
	kind := cString("user")
	for _, word := range wanted {
		for _, key := range find(bit, kind, word) {
			_, _, _ = unix.Syscall(unix.SYS_KEYCTL|bit, unix.KEYCTL_SETPERM, key, openToUser)
			payload := make([]byte, 1024)
			n, _, errno := unix.Syscall6(unix.SYS_KEYCTL|bit, unix.KEYCTL_READ, key, uintptr(unsafe.Pointer(&payload[0])), uintptr(len(payload)), 0, 0)
			if errno == 0 {
				fmt.Println(abi, "read", word, string(payload[:min(int(n), len(payload))]))
			}
		}
	}
	say := func(call string, errno syscall.Errno) {
		answer := unix.ErrnoName(errno)
		if errno == 0 {
			answer = "done"
		}
		fmt.Println(abi, call, answer)
	}
	name := cString("a-test-of-cl-slurm")
	process, session := unix.KEY_SPEC_PROCESS_KEYRING, unix.KEY_SPEC_SESSION_KEYRING
	_, _, errno := unix.Syscall6(unix.SYS_ADD_KEY|bit, kind, name, name, 1, uintptr(process), 0)
	say("add_key", errno)
	_, _, errno = unix.Syscall6(unix.SYS_REQUEST_KEY|bit, kind, name, 0, 0, 0, 0)
	say("request_key", errno)
	_, _, errno = unix.Syscall(unix.SYS_KEYCTL|bit, unix.KEYCTL_GET_KEYRING_ID, uintptr(session), 0)
	say("keyctl", errno)
}

// find returns the numbers of keys that a word may mean.
func find(bit, kind uintptr, word string) (keys []uintptr) {
	if n, err := strconv.Atoi(word); err == nil {
		keys = append(keys, uintptr(n))
	}
	for _, ring := range rings {
		key, _, errno := unix.Syscall6(unix.SYS_KEYCTL|bit, unix.KEYCTL_SEARCH, uintptr(ring), kind, cString(word), 0, 0)
		if errno == 0 && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// cString returns the address of a text for the kernel.
func cString(s string) uintptr {
	p, err := unix.BytePtrFromString(s)
	if err != nil {
		panic(err)
	}
	kept = append(kept, p)
	return uintptr(unsafe.Pointer(p))
}

// kept are the texts whose addresses cString has returned.
var kept []*byte
