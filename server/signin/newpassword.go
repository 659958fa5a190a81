package signin

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of new passwords (NIST SP 800-63B, section 5.1.1.2). The server bounds the guesses, so that ten characters
// are enough; there are no rules of composition. The upper bound allows any phrase.
const (
	leastPassword = 10  // characters
	mostPassword  = 256 // bytes
)

// common has words of which the commonest passwords are made, one on each line, in lower case.
//
//go:embed common.txt
var common string

// CheckNewPassword refuses a password that is too short, or that everybody would try first. Passwords from before
// the rule go on to work.
func CheckNewPassword(password, name string) error {
	switch n := utf8.RuneCountInString(password); {
	case !utf8.ValidString(password) || strings.ContainsFunc(password, unicode.IsControl):
		return errors.New("a password has no control characters")
	case n < leastPassword:
		return fmt.Errorf("a password has at least %d characters, and this one has %d: several words in a row are easy to keep in mind", leastPassword, n)
	case len(password) > mostPassword:
		return fmt.Errorf("a password has at most %d bytes, and this one has %d", mostPassword, len(password))
	case isCommon(strings.ToLower(password), strings.ToLower(name)):
		return errors.New("this password is one of the first that a guesser tries: take another one, such as several words in a row")
	}
	return nil
}

// isCommon reports whether a password has few different characters, is a row of the alphabet or of a keyboard, or is a
// common word or the user's name, once or several times, with digits and signs around it.
func isCommon(password, name string) bool {
	const fewest = 5
	different := map[rune]bool{}
	for _, r := range password {
		different[r] = true
	}
	if len(different) < fewest || isRow(password) {
		return true
	}
	words := append(strings.Fields(common), name)
	for _, text := range []string{password, unmasked(password)} {
		core := strings.TrimFunc(text, func(r rune) bool { return !unicode.IsLetter(r) })
		if len(core) < 3 && isRow(strings.Trim(strings.Replace(text, core, "", 1), "!?.,-_*#")) {
			return true // digits in a row, with a letter or two
		}
		for _, word := range words {
			if core != "" && word != "" && strings.ReplaceAll(core, word, "") == "" {
				return true
			}
		}
	}
	return false
}

// unmasked replaces signs that stand for letters, as in p@ssw0rd, but not those at the end.
func unmasked(password string) string {
	body := strings.TrimRightFunc(password, func(r rune) bool { return !unicode.IsLetter(r) })
	return strings.NewReplacer("0", "o", "1", "i", "3", "e", "4", "a", "5", "s", "7", "t", "@", "a", "$", "s", "!", "i").Replace(body)
}

// isRow reports whether a text is a part of a row of characters, forwards or backwards.
func isRow(text string) bool {
	if len(text) < 3 {
		return false
	}
	backwards := []rune(text)
	slices.Reverse(backwards)
	for _, row := range []string{"abcdefghijklmnopqrstuvwxyz", "01234567890", "qwertyuiop", "qwertzuiop", "asdfghjkl", "zxcvbnm", "1q2w3e4r5t6y7u8i9o0p", "1qaz2wsx3edc4rfv5tgb"} {
		for _, one := range []string{text, string(backwards)} {
			if strings.Contains(row+row+row, one) {
				return true
			}
		}
	}
	return false
}
