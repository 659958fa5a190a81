package testsite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"

	"github.com/cl-slurm/cl-slurm/internal/background"
)

// Journal counts the beginnings of commands, each of which runs Journals first. A container can write to a pipe through a read-only
// mount.
type Journal struct {
	pipe *os.File
	done <-chan struct{}

	mu    sync.Mutex
	begun map[string]int
	lines int
}

// Journals is a shell's command that notes in the journal that its attempt has begun. Its queue has JournalBind.
const Journals = `echo "$HOME $CODALAB_ATTEMPT" >/journal/pipe`

// JournalBind returns the setting of a queue whose commands note their beginnings in a journal of this directory.
func JournalBind(dir string) string { return fmt.Sprintf("binds = [\"%s:/journal\"]\n", dir) }

// NewJournal makes a journal in a directory that all may read. The caller closes it.
func NewJournal(dir string) (*Journal, error) {
	path := filepath.Join(dir, "pipe")
	if err := errors.Join(syscall.Mkfifo(path, 0o600), os.Chmod(path, 0o622)); err != nil {
		return nil, fmt.Errorf("make the journal: %w", err)
	}
	pipe, err := os.OpenFile(path, os.O_RDWR, 0) // as a writer, too, so that it has no end
	if err != nil {
		return nil, err
	}
	j := &Journal{pipe: pipe, begun: map[string]int{}}
	j.done = background.Go(j.read)
	return j, nil
}

func (j *Journal) read() {
	for lines := bufio.NewScanner(j.pipe); lines.Scan(); {
		j.mu.Lock()
		j.begun[lines.Text()]++
		j.lines++
		j.mu.Unlock()
	}
}

// Close ends the journal.
func (j *Journal) Close() error {
	err := j.pipe.Close()
	<-j.done
	return err
}

// Count returns how many commands have begun.
func (j *Journal) Count() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.lines
}

// Times returns how often an attempt of a bundle has begun.
func (j *Journal) Times(bundle string, attempt int) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.begun[fmt.Sprint("/", bundle, " ", attempt)]
}

// Twice returns the attempts that have begun more than once, as "/BUNDLE ATTEMPT".
func (j *Journal) Twice() (twice []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for attempt, times := range j.begun {
		if times > 1 {
			twice = append(twice, attempt)
		}
	}
	return twice
}

// KillWorker kills one of the site's workers by SIGKILL; false if there was none.
func (s *Site) KillWorker(ctx context.Context) bool {
	found, _ := s.Run(ctx, "pgrep", "-f", "cl-worker exec .*"+s.Shared) // an error if there is none
	pids := strings.Fields(found)
	if len(pids) == 0 {
		return false
	}
	_, err := s.Run(ctx, "kill", "-KILL", pids[rand.IntN(len(pids))])
	return err == nil
}

// bridgeID matches the line by which a bridge says that it has started.
var bridgeID = regexp.MustCompile(`msg=started rows=\d+ bridge=(\S+)`)

// Accounted returns how many of the site's jobs that got nodes end in each state, such as COMPLETED, by Slurm's accounting, which lags a
// few seconds behind. A task of an array is a job. A submission that Slurm refuses may be there as one that failed, without nodes.
func (s *Site) Accounted(ctx context.Context) (map[string]int, error) {
	id := bridgeID.FindStringSubmatch(s.Log())
	if id == nil {
		return nil, errors.New("the bridge has not said its name")
	}
	said, err := s.Run(ctx, "sacct", "--allocations", "--noheader", "--parsable2", "--starttime=now-1days", "--format=State,NodeList,JobName")
	if err != nil {
		return nil, err
	}
	states := map[string]int{}
	for line := range strings.Lines(said) {
		f := strings.SplitN(strings.TrimSpace(line), "|", 3)
		if len(f) == 3 && f[1] != "None assigned" && strings.HasSuffix(f[2], "-"+id[1]) {
			states[f[0]]++
		}
	}
	return states, nil
}
