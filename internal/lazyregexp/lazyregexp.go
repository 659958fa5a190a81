// Package lazyregexp compiles regular expressions of package variables when they are first used. Programs that start for each run, or for
// each command of a user, would compile all of them at each start.
package lazyregexp

import (
	"regexp"
	"sync"
)

// New returns a function that returns the expression. Its first call compiles it, and panics if it is none.
func New(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}
