// Command neighbour is two bundles on one node, or a bundle and another program of the same account, for
// tests.
//
//	neighbour hold TOKEN PORT
//	    hold one of each thing that no other bundle may reach, print "begun", and end with the
//	    standard input, or after TERM
//	neighbour try DEVICE PORT HEXTOKEN FILE…
//	    try to get out of this container, and to reach what another process holds; print a line for each
//	    wall: "NAME: held", or "NAME: " and the way through it
package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func main() {
	inherited := openDescriptors() // before this program opens any
	switch os.Args[1] {
	case "hold":
		if err := hold(os.Args[2], os.Args[3]); err != nil {
			fmt.Println("cannot hold:", err)
			os.Exit(1)
		}
	case "capabilities":
		fmt.Print(moreCapabilities())
	case "try":
		token, err := hex.DecodeString(os.Args[4])
		if err != nil {
			panic(err)
		}
		a := attack{token: string(token), port: os.Args[3], files: os.Args[5:], inherited: inherited}
		if a.device, err = strconv.Atoi(os.Args[2]); err != nil {
			panic(err)
		}
		a.run()
	}
}

// secret is what a neighbour holds.
const secret = "precious"

// key returns the key of System V IPC for a token.
func key(token string) int {
	n, err := strconv.ParseUint(token[:7], 16, 31)
	if err != nil {
		panic(err)
	}
	return int(n)
}

// Names of the things that a neighbour holds.
func shmFile(token string) string    { return "/dev/shm/" + token }
func queue(token string) string      { return "cl-slurm-" + token }
func abstract(token string) string   { return "@cl-slurm-" + token }
func socketFile(token string) string { return "/tmp/" + token + ".sock" }
func plainFile(token string) string  { return "/tmp/" + token }

func hold(token, port string) error {
	defer func() {
		for _, name := range []string{shmFile(token), socketFile(token), plainFile(token)} {
			_ = os.Remove(name)
		}
	}()
	for _, name := range []string{shmFile(token), plainFile(token)} {
		if err := os.WriteFile(name, []byte(secret), 0o666); err != nil {
			return err
		}
	}
	removeIPC, err := holdIPC(token)
	defer removeIPC()
	if err != nil {
		return err
	}
	for _, at := range [][2]string{{"unix", abstract(token)}, {"unix", socketFile(token)}, {"tcp", "127.0.0.1:" + port}} {
		listener, err := net.Listen(at[0], at[1])
		if err != nil {
			return err
		}
		defer func() { _ = listener.Close() }()
		go answer(listener)
	}
	fmt.Println("begun")
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	if _, err := os.Stdin.Stat(); err == nil && os.Getenv("HOLD") == "stdin" {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			end <- syscall.SIGTERM
		}()
	}
	<-end
	return nil
}

func answer(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, secret)
		_ = conn.Close()
	}
}

func holdIPC(token string) (remove func(), err error) {
	remove = func() {}
	id, err := unix.SysvShmGet(key(token), 4096, unix.IPC_CREAT|0o666)
	if err != nil {
		return remove, fmt.Errorf("shmget: %w", err)
	}
	remove = func() { _, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) }
	memory, err := unix.SysvShmAttach(id, 0, 0)
	if err != nil {
		return remove, fmt.Errorf("shmat: %w", err)
	}
	copy(memory, secret)
	name, err := unix.BytePtrFromString(queue(token))
	if err != nil {
		return remove, err
	}
	_, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(name)), unix.O_CREAT|unix.O_RDWR, 0o666, 0, 0, 0)
	if errno != 0 {
		return remove, fmt.Errorf("mq_open: %w", errno)
	}
	first := remove
	return func() {
		first()
		_, _, _ = unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(name)), 0, 0)
	}, nil
}

// attack is one call of try.
type attack struct {
	token     string
	port      string
	device    int // a disk of the host
	files     []string
	inherited []int
}

// run tries each wall. An attempt returns the way through the wall, or "".
func (a *attack) run() {
	for _, wall := range []struct {
		name string
		try  func() string
	}{
		{"processes", a.processes},
		{"files", a.otherFiles},
		{"shared memory", a.sharedMemory},
		{"System V IPC", a.systemV},
		{"message queues", a.messageQueues},
		{"abstract sockets", func() string { return a.connect("unix", abstract(a.token)) }},
		{"sockets in files", func() string { return a.connect("unix", socketFile(a.token)) }},
		{"ports", a.ports},
		{"users", users},
		{"capabilities", capabilities},
		{"new privileges", newPrivileges},
		{"devices", a.devices},
		{"settings", settings},
		{"cgroups", cgroups},
		{"the kernel's own files", kernelFiles},
		{"priority", priority},
		{"terminal", terminal},
		{"descriptors", func() string { return a.descriptors() }},
		{"environment", environment},
	} {
		how := wall.try()
		if how == "" {
			how = "held"
		}
		fmt.Printf("%s: %s\n", wall.name, how)
	}
}

// processes looks for the holder by its arguments. Its own arguments have the token in another form.
func (a *attack) processes() string {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(lines) == 0 {
		return "has no /proc"
	}
	for _, name := range lines {
		line, err := os.ReadFile(name)
		if err != nil || !strings.Contains(string(line), a.token) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		how := "sees process " + strconv.Itoa(pid)
		if unix.Kill(pid, 0) == nil {
			how += ", and may send it signals"
		}
		if unix.PtraceSeize(pid) == nil {
			how += ", and may trace it"
		}
		return how
	}
	return ""
}

// otherFiles looks for a file of the holder, and for the host's files, by several ways.
func (a *attack) otherFiles() string {
	var found []string
	for _, file := range append(a.files, plainFile(a.token)) {
		for _, prefix := range []string{"", "/..", "/proc/1/root", "/proc/self/root/../..", "/oldroot", "/proc/1/cwd/../../..", "/.singularity.d/../.."} {
			if text, err := os.ReadFile(prefix + file); err == nil && strings.Contains(string(text), secret) {
				found = append(found, prefix+file)
			}
		}
	}
	return reads(found)
}

// reads is the answer about files that could be read.
func reads(files []string) string {
	if len(files) == 0 {
		return ""
	}
	return "reads " + strings.Join(files, ", ")
}

func (a *attack) sharedMemory() string {
	if text, err := os.ReadFile(shmFile(a.token)); err == nil {
		return "reads " + string(text)
	}
	return ""
}

func (a *attack) systemV() string {
	id, err := unix.SysvShmGet(key(a.token), 0, 0)
	if err == nil {
		return fmt.Sprintf("has the segment %d", id)
	}
	if !errors.Is(err, unix.ENOENT) {
		return "gets another answer: " + err.Error()
	}
	return ""
}

func (a *attack) messageQueues() string {
	name, err := unix.BytePtrFromString(queue(a.token))
	if err != nil {
		return err.Error()
	}
	_, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(name)), unix.O_RDONLY, 0, 0, 0, 0)
	if errno == 0 {
		return "opens the queue"
	}
	if errno != unix.ENOENT {
		return "gets another answer: " + errno.Error()
	}
	return ""
}

func (*attack) connect(network, address string) string {
	conn, err := net.Dial(network, address)
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close() }()
	text, _ := io.ReadAll(conn)
	return "connects and reads " + string(text)
}

// ports connects to the holder's port, and then takes the same port for itself.
func (a *attack) ports() string {
	if how := a.connect("tcp", "127.0.0.1:"+a.port); how != "" {
		return how
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+a.port)
	if err != nil {
		return "cannot have the port itself: " + err.Error()
	}
	_ = listener.Close()
	return ""
}

// users reads the map of user ids (user_namespaces(7)). In the first namespace of the host it has all ids, and the
// command has to be the account, which owns /work.
func users() string {
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return err.Error()
	}
	if fields := strings.Fields(string(text)); len(fields) != 3 || fields[2] != "4294967295" {
		return ""
	}
	var work unix.Stat_t
	if err := unix.Stat("/work", &work); err != nil {
		return err.Error()
	}
	own := fmt.Sprintf("%[1]d\t%[1]d\t%[1]d\t%[1]d", work.Uid)
	switch {
	case status("Uid") != own:
		return "has no user namespace: user " + strconv.Itoa(os.Getuid()) + " is the same outside"
	case syscall.Setresuid(0, 0, 0) == nil:
		return "has become root outside"
	}
	return ""
}

// status returns a field of /proc/self/status.
func status(field string) string {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// dockers are the capabilities of Docker's containers.
const dockers = 0xa80425fb

func capabilities() string {
	if how := moreCapabilities(); how != "" {
		return how
	}
	// A process with CAP_SETPCAP may make all capabilities of its bounding set inheritable.
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&head, &sets[0]); err != nil {
		return err.Error()
	}
	for i := range sets {
		sets[i].Inheritable = ^uint32(0)
	}
	_ = unix.Capset(&head, &sets[0]) // the next program shows whether it had an effect
	output, err := exec.Command("/proc/self/exe", "capabilities").Output()
	if err != nil {
		return err.Error()
	}
	return string(output)
}

// moreCapabilities reports the capabilities of this process that Docker's containers lack.
func moreCapabilities() string {
	for _, set := range []string{"CapPrm", "CapEff", "CapAmb"} {
		n, err := strconv.ParseUint(status(set), 16, 64)
		if err != nil {
			return err.Error()
		}
		if more := n &^ dockers; more != 0 {
			return fmt.Sprintf("has %#x in %s in addition to those of Docker", more, set)
		}
	}
	return ""
}

func newPrivileges() string {
	if status("NoNewPrivs") != "1" {
		return "gains privileges by setuid programs"
	}
	return ""
}

// devices makes a device for the host's disk, and opens it.
func (a *attack) devices() string {
	for _, dir := range []string{"/tmp", "/work", "/dev/shm"} {
		file := filepath.Join(dir, "disk")
		if err := unix.Mknod(file, unix.S_IFBLK|0o600, a.device); err != nil {
			continue
		}
		fd, err := unix.Open(file, unix.O_RDONLY, 0)
		_ = os.Remove(file)
		if err == nil {
			_ = unix.Close(fd)
			return "opens the host's disk in " + dir
		}
	}
	return ""
}

// settings opens files for writing that change the machine. It writes nothing.
func settings() string {
	found := ""
	for _, top := range []string{"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/sys/kernel", "/sys/fs", "/sys/power", "/sys/module"} {
		_ = filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return nil
			}
			fd, err := unix.Open(name, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
			if err != nil {
				return nil
			}
			_ = unix.Close(fd)
			found = "opens " + name + " for writing"
			return fs.SkipAll
		})
		if found != "" {
			break
		}
	}
	return found
}

// cgroups opens files for writing that control cgroups, and makes a cgroup in each that it can. With cgroup v2, some
// belong to the account: those of its own systemd, under which a bridge may run, and that of a job's task.
func cgroups() (found string) {
	_ = filepath.WalkDir("/sys/fs/cgroup", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
		case d.IsDir():
			made := name + "/cl-slurm-attack"
			if unix.Mkdir(made, 0o700) != nil {
				return nil
			}
			_, err := os.Stat(made + "/cgroup.procs") // Docker has a tmpfs above its cgroups of version 1
			_ = unix.Rmdir(made)
			if err == nil {
				found = "makes a cgroup in " + name
				return fs.SkipAll
			}
		default:
			if fd, err := unix.Open(name, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0); err == nil {
				_ = unix.Close(fd)
				found = "opens " + name + " for writing"
				return fs.SkipAll
			}
		}
		return nil
	})
	return found
}

// kernelFiles reads files with facts about the whole machine, which Docker hides (moby
// daemon/pkg/oci/defaults.go: DefaultLinuxSpec, MaskedPaths).
func kernelFiles() string {
	var found []string
	for _, file := range []string{"/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug", "/proc/timer_list", "/proc/timer_stats"} {
		f, err := os.Open(file)
		if err != nil {
			continue
		}
		if n, _ := f.Read(make([]byte, 16)); n > 0 {
			found = append(found, file)
		}
		_ = f.Close()
	}
	for _, dir := range []string{"/proc/acpi", "/proc/asound", "/proc/scsi", "/sys/firmware"} {
		if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
			found = append(found, dir)
		}
	}
	return reads(found)
}

func priority() string {
	if unix.Setpriority(unix.PRIO_PROCESS, 0, -5) == nil {
		return "takes a higher priority"
	}
	first := struct{ priority int32 }{1}
	if _, _, errno := unix.Syscall(unix.SYS_SCHED_SETSCHEDULER, 0, unix.SCHED_FIFO, uintptr(unsafe.Pointer(&first))); errno == 0 {
		return "runs in real time"
	}
	return ""
}

// terminal looks for a terminal. A process whose session began outside of its PID namespace sees the session 0
// (getsid(2)), and has the terminal of that session.
func terminal() string {
	if session, err := unix.Getsid(0); err != nil || session == 0 {
		return "belongs to its caller's session"
	}
	if f, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); err == nil {
		_ = f.Close()
		return "has its caller's terminal"
	}
	return ""
}

// openDescriptors lists the descriptors beyond the standard ones.
func openDescriptors() (open []int) {
	for fd := 3; fd < 1024; fd++ {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			open = append(open, fd)
		}
	}
	return open
}

func (a *attack) descriptors() string {
	var found []string
	for _, fd := range a.inherited {
		target, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		if !strings.HasPrefix(target, "anon_inode:[event") && !strings.HasPrefix(target, "/sys/fs/cgroup/") { // Go's own
			found = append(found, fmt.Sprintf("has %d, %s", fd, target))
		}
	}
	return strings.Join(found, ", ")
}

func environment() string {
	for _, file := range []string{"/proc/1/environ", "/proc/self/environ"} {
		if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), "SECRET") {
			return "reads its caller's in " + file
		}
	}
	return ""
}
