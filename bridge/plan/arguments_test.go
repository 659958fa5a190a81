package plan_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// arguments are the words after a command.
type arguments struct {
	words []string
	used  []bool
	err   error
}

func (a *arguments) use(i int) {
	if a.used == nil {
		a.used = make([]bool, len(a.words))
	}
	a.used[i] = true
}

// next returns the first word.
func (a *arguments) next() string {
	if len(a.words) == 0 {
		a.err = errors.New("a word is missing")
		return ""
	}
	a.use(0)
	return a.words[0]
}

// get returns the value of a key, without its quotes; empty for none.
func (a *arguments) get(key string) string {
	for i, word := range a.words {
		if value, ok := strings.CutPrefix(word, key+"="); ok {
			a.use(i)
			return strings.Trim(value, `"`)
		}
	}
	return ""
}

func (a *arguments) flag(name string) bool {
	i := slices.Index(a.words, name)
	if i >= 0 {
		a.use(i)
	}
	return i >= 0
}

// keys returns the keys that no command has read yet.
func (a *arguments) keys() []string {
	var keys []string
	for i, word := range a.words {
		if key, _, ok := strings.Cut(word, "="); ok && (a.used == nil || !a.used[i]) {
			keys = append(keys, key)
		}
	}
	return keys
}

func (a *arguments) number(text string) int {
	n, err := strconv.Atoi(text)
	a.err = errors.Join(a.err, err)
	return n
}

// length reads a duration; none for no text.
func (a *arguments) length(text string) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	a.err = errors.Join(a.err, err)
	return d
}

func (a *arguments) unused() error {
	for i, word := range a.words {
		if a.used == nil || !a.used[i] {
			return errors.Join(a.err, fmt.Errorf("unknown word %q", word))
		}
	}
	return a.err
}
