package argparse

import "github.com/cl-slurm/cl-slurm/internal/spelling"

// Nearest returns the word of list that is most similar to a mistyped word; empty if none is similar.
func Nearest(typed string, list []string) string { return spelling.Nearest(typed, list) }

// DidYouMean returns the end of an error message that suggests a word; empty without a word.
func DidYouMean(prefix, word string) string {
	if word == "" {
		return ""
	}
	return ": did you mean " + prefix + word + "?"
}
