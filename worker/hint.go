package worker

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
)

// hint recognizes a common failure by the end of a command's standard error.
type hint struct {
	match *regexp.Regexp
	// sentence says what to change. %s is the text of the expression's first group.
	sentence string
}

// hints returns the hints in the order of their precedence: the first one that matches counts.
func hints() []hint {
	return []hint{
		{regexp.MustCompile(`(?:ModuleNotFoundError|ImportError): No module named '?([\w.]+)`), "The image has no Python module %s: use an image that has it, or install it in the command."},
		{regexp.MustCompile(`there is no package called .(\w[\w.]*)`), "The image has no R package %s: use an image that has it, or install it in the command."},
		{regexp.MustCompile(`error while loading shared libraries: ([\w.+-]+): cannot open`), "The image lacks the library %s: use an image that has it."},
		{regexp.MustCompile(`(?i)CUDA out of memory|CUDA error: out of memory|CUDA_ERROR_OUT_OF_MEMORY|RESOURCE_EXHAUSTED: .*(?:GPU|allocat)`), "The memory of the GPU was full: use a smaller batch or model, or a GPU with more memory."},
		{regexp.MustCompile(`(?i)insufficient shared memory|unable to open shared memory object|DataLoader worker .* is killed by signal: Bus error`), "The shared memory /dev/shm was full: use fewer worker processes in the program."},
		{regexp.MustCompile(`CUDA driver version is insufficient|no kernel image is available for execution|forward compatibility was attempted`), "The image's CUDA does not fit the node's GPU or its driver: use an image with another version of CUDA."},
		{regexp.MustCompile(`No CUDA GPUs are available|no CUDA-capable device|Found no NVIDIA driver|Torch not compiled with CUDA enabled`), "The program found no GPU: ask for one with --request-gpus, and use an image with CUDA."},
		{regexp.MustCompile(`No space left on device`), "A disk was full: write less, or ask for more with --request-disk."},
		{regexp.MustCompile(`Disk quota exceeded`), "A disk quota was used up: write less, or remove files that are not needed any more."},
		{regexp.MustCompile(`[Ee]xec format error`), "A program was made for another kind of processor, or a script does not begin with #!: use an image of the nodes' architecture."},
		{regexp.MustCompile(`[Ii]llegal instruction`), "A program uses instructions that the node's processor lacks: use a build for older processors, or another queue."},
		{regexp.MustCompile(`(?:line \d+|sh: \d+|sh): ([\w./+-]+): (?:command )?not found`), "The image has no program %s: use an image that has it, or install it in the command."},
		{regexp.MustCompile(`Temporary failure in name resolution|Could not resolve host|Network is unreachable|Name or service not known`), "The command did not reach the network: ask for it with --request-network, or give the data as a dependency."},
		{regexp.MustCompile(`\bMemoryError\b|std::bad_alloc|Cannot allocate memory|java\.lang\.OutOfMemoryError`), "The program got no more memory: use less, or ask for more with --request-memory."},
		{regexp.MustCompile(`Read-only file system`), "Dependencies and the image can only be read: write into the working directory or $TMPDIR."},
	}
}

// signalHint returns what to change after a signal that ended the command; "" if that is not known.
func signalHint(signal int) string {
	const illegalInstruction = 4
	if signal == illegalInstruction {
		return "A program uses instructions that the node's processor lacks: use a build for older processors, or another queue."
	}
	return ""
}

// hintFor returns what to change after a failure with this end of the standard error; "" if that is not known.
func hintFor(end string) string {
	for _, h := range hints() {
		m := h.match.FindStringSubmatch(end)
		switch {
		case m == nil:
		case len(m) > 1:
			return fmt.Sprintf(h.sentence, m[1])
		default:
			return h.sentence
		}
	}
	return ""
}

const (
	// readEnd is the length of the end of the standard error that is read, tailLines and tailLength bound the part of
	// it that a sentence repeats.
	readEnd    = 4096
	tailLines  = 3
	tailLength = 400
)

// addOutput adds to the sentence about a command that failed what to change, and the end of its standard error.
func (e ending) addOutput(sentence string) string {
	words := []string{sentence, cmp.Or(hintFor(e.stderrEnd), signalHint(e.exit.Signal)), ""}
	if end := lastLines(e.stderrEnd); end != "" {
		words[2] = "The end of stderr: " + end
	}
	if words[1] == "" && words[2] == "" {
		return sentence
	}
	words[0] = cmp.Or(sentence, fmt.Sprintf("Exit code %d.", e.exit.Code))
	return strings.Join(slices.DeleteFunc(words, func(s string) bool { return s == "" }), " ")
}

// readTail returns the end of a file of the command's output; "" if it cannot be read.
func readTail(f *os.File) string {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	end := make([]byte, readEnd)
	n, _ := f.ReadAt(end, max(0, info.Size()-readEnd)) // a shorter end is enough
	return string(end[:n])
}

// lastLines returns the last lines of a text that are not empty, in one line. A server makes a bundle killed whose
// failure has codalab.KillRequested, so the text does not have that.
func lastLines(text string) string {
	var lines []string
	for line := range strings.Lines(strings.ReplaceAll(text, "\r", "\n")) { // a progress bar's return begins a line
		if line = strings.TrimSpace(termtext.OneLine(line)); line != "" {
			lines = append(lines, line)
		}
	}
	joined := strings.Join(lines[max(0, len(lines)-tailLines):], " | ")
	if len(joined) > tailLength {
		joined = "… " + strings.ToValidUTF8(joined[len(joined)-tailLength:], "")
	}
	return strings.ReplaceAll(joined, codalab.KillRequested, strings.ToLower(codalab.KillRequested))
}
