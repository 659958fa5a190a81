package azurebatch

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"
)

// Shape is the request of a pilot's task.
type Shape struct {
	// Image is the worker's image, such as ghcr.io/mylab/cl-worker:1.2.
	Image string
	// CPUs, GPUs and MemoryMB bound the container.
	CPUs, GPUs, MemoryMB int64
	// User is the user in the container; empty means the image's.
	User string
	// Slots is the number of the node's task slots that a task takes; 0 means 1.
	Slots int64
	// WorkDir is an absolute directory of the nodes for the files of workers, under the same path in the container.
	// Empty means none: the worker's files are in the task's own directory.
	WorkDir string
	// PasswordFile is a file of the nodes with a user's name and password, for servers without worker tokens.
	PasswordFile string
	// LogContainer is the address of a container of Azure Storage, with its SAS; empty means none.
	LogContainer string
	// Options are options for "docker create" in place of those that the worker's built-in runtime needs, separated
	// by spaces.
	Options string
}

// keep is the time for which an ended task and its files stay: Batch's own default for the files.
const keep = 7 * 24 * time.Hour

// cpusVariable is the environment variable from which our worker takes the number of its CPUs: in a container it sees all
// of the node.
const cpusVariable = "CL_WORKER_MAX_CPUS"

// tokenVariable is the environment variable from which our worker takes its token.
const tokenVariable = "CODALAB_WORKER_TOKEN" //nolint:gosec // a name

// Task returns the task of a pilot whose command has these words. An empty token means that the worker reads PasswordFile.
func (s Shape) Task(name string, words []string, token string) (Task, error) {
	if token != "" {
		s.PasswordFile = "" // the worker does not need it
	}
	options, err := s.containerOptions()
	if err != nil {
		return Task{}, err
	}
	line, err := commandLine(words)
	if err != nil {
		return Task{}, err
	}
	t := Task{
		ID: name, CommandLine: line, ContainerSettings: ContainerSettings{ImageName: s.Image, RunOptions: options},
		Constraints: Constraints{RetentionTime: fmt.Sprintf("PT%dS", int64(keep.Seconds()))}, RequiredSlots: max(s.Slots, 1), OutputFiles: s.outputFiles(name),
	}
	t.Environment = append(t.Environment, NameValue{cpusVariable, strconv.FormatInt(s.CPUs, 10)})
	if token != "" {
		t.Environment = append(t.Environment, NameValue{tokenVariable, token})
	}
	return t, nil
}

// containerOptions returns the options for "docker create". Batch splits them at spaces.
func (s Shape) containerOptions() (string, error) {
	words := []string{"--cpus", strconv.FormatInt(s.CPUs, 10), "--memory", strconv.FormatInt(s.MemoryMB, 10) + "m"}
	if s.User != "" {
		words = append(words, "--user", s.User)
	}
	if s.GPUs > 0 {
		words = append(words, "--gpus", strconv.FormatInt(s.GPUs, 10))
	}
	if s.Options != "" {
		words = append(words, strings.Fields(s.Options)...)
	} else {
		words = append(words, builtinOptions()...)
	}
	for _, v := range []struct{ path, mode string }{{s.WorkDir, ""}, {s.PasswordFile, ":ro"}} {
		switch {
		case v.path == "":
		case !path.IsAbs(v.path) || strings.Contains(v.path, ":"):
			return "", fmt.Errorf("%q is not an absolute path of the nodes without a colon", v.path)
		default:
			words = append(words, "--volume", v.path+":"+v.path+v.mode)
		}
	}
	for _, w := range words {
		if strings.Trim(w, bare) != "" {
			return "", fmt.Errorf("%q cannot be passed to Azure Batch's containers: it has a space, a quote or a sign of the shell", w)
		}
	}
	return strings.Join(words, " "), nil
}

// builtinOptions returns the options that the worker's built-in runtime needs in a container of Docker, and no more of
// them (TestWorkersContainerNeedsEachOption). Docker's default seccomp profile permits unshare, clone with a new namespace
// and mount only to containers with CAP_SYS_ADMIN (moby/profiles: seccomp/default.json), and its AppArmor profile
// docker-default forbids mount. The masked parts of /proc forbid the /proc of a new namespace (Linux:
// mount_too_revealing). The volume is a directory of the node's disk for /tmp: Linux has no overlay on that of a
// container. The container gets no capability by all this, and not Docker's socket.
func builtinOptions() []string {
	return []string{
		"--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined", "--security-opt", "systempaths=unconfined",
		"--device", "/dev/fuse", "--device", "/dev/net/tun", "--volume", "/tmp",
	}
}

// outputs are the files of a task's output.
var outputs = []string{"stdout.txt", "stderr.txt"} //nolint:gochecknoglobals // a constant

// outputFiles returns the files that Batch uploads when a task has ended. Their paths are relative to the task's
// working directory. A path without a wildcard is the blob's name (Batch REST: OutputFileBlobContainerDestination).
func (s Shape) outputFiles(name string) []OutputFile {
	if s.LogContainer == "" {
		return nil
	}
	files := make([]OutputFile, len(outputs))
	for i, file := range outputs {
		files[i].FilePattern, files[i].Options.Condition = "../"+file, "taskcompletion"
		files[i].Destination.Container.Path, files[i].Destination.Container.ContainerURL = name+"/"+file, s.LogContainer
	}
	return files
}

// Redacted returns the task without its secrets, for people.
func (t Task) Redacted() Task {
	t.OutputFiles = append([]OutputFile(nil), t.OutputFiles...)
	for i := range t.OutputFiles {
		c := &t.OutputFiles[i].Destination.Container
		c.ContainerURL = withoutQuery(c.ContainerURL)
	}
	t.Environment = append([]NameValue(nil), t.Environment...)
	for i, v := range t.Environment {
		if v.Name == tokenVariable {
			t.Environment[i].Value = "…"
		}
	}
	return t
}

// withoutQuery returns an address without its SAS.
func withoutQuery(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "…"
	}
	if u.RawQuery != "" {
		u.RawQuery = "…"
	}
	return u.String()
}

// bare are the characters of words that need no quotes for any shell.
const bare = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./:@,+%"

// commandLine joins the words of a command. Batch runs no shell, and splits the line by itself. Its documents show
// words in single and in double quotes ("Run tasks in Batch nodes": /bin/bash -c '…'; "Environment variables":
// /bin/sh -c "…"), and no escape within them. So a word that has both kinds cannot be passed. The agent writes the line
// into a script of the node (azure-sdk-for-net#17107): no word may have signs that a shell expands, unless they are
// in single quotes.
func commandLine(words []string) (string, error) {
	quoted := make([]string, len(words))
	for i, w := range words {
		switch {
		case strings.ContainsAny(w, "\n\r\x00"):
			return "", errors.New("a word of the worker's command has a line break, which Azure Batch cannot pass")
		case w != "" && strings.Trim(w, bare) == "":
			quoted[i] = w
		case !strings.Contains(w, "'"):
			quoted[i] = "'" + w + "'"
		case !strings.ContainsAny(w, "\"\\$`"):
			quoted[i] = `"` + w + `"`
		default:
			return "", fmt.Errorf("the word %q of the worker's command has both kinds of quotes, which Azure Batch cannot pass", w)
		}
	}
	return strings.Join(quoted, " "), nil
}
