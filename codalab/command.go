package codalab

import (
	"errors"
	"fmt"
	"strings"
)

// MaxCommand limits a run's command, in bytes. A shell gets the command as one argument, and Linux takes
// no longer one (execve(2): MAX_ARG_STRLEN, which counts the final zero).
const MaxCommand = 128<<10 - 1

// CheckCommand returns an error about a command that no shell can get.
func CheckCommand(command string) error {
	switch {
	case len(command) > MaxCommand:
		return fmt.Errorf("the command has %d bytes, and Linux takes at most %d: it has to be in a file, for example in an uploaded one", len(command), MaxCommand)
	case strings.ContainsRune(command, 0):
		return errors.New("the command has a zero byte, which no shell takes")
	}
	return nil
}
