package interpret

import (
	"errors"
	"regexp"
	"strings"
)

var (
	errQuotation = errors.New("No closing quotation")
	errEscape    = errors.New("No escaped character")
)

// splitTokens splits a directive into words as a POSIX shell does, without comments
// (codalab/lib/formatting.py: string_to_tokens).
func splitTokens(text string) ([]string, error) {
	tokens := []string{}
	var word strings.Builder
	inWord, escaped, quote := false, false, rune(0)
	for _, c := range text {
		switch {
		case escaped:
			if quote != 0 && c != quote && c != '\\' {
				word.WriteByte('\\') // within quotes, only these two are escaped
			}
			word.WriteRune(c)
			escaped = false
		case c == '\\' && quote != '\'':
			inWord, escaped = true, true
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '\'' || c == '"':
			inWord, quote = true, c
		case strings.ContainsRune(" \t\r\n", c):
			if inWord {
				tokens = append(tokens, word.String())
			}
			word.Reset()
			inWord = false
		default:
			inWord = true
			word.WriteRune(c)
		}
	}
	switch {
	case escaped:
		return nil, errEscape
	case quote != 0:
		return nil, errQuotation
	case inWord:
		tokens = append(tokens, word.String())
	}
	return tokens, nil
}

var unsafeInShell = regexp.MustCompile(`[^a-zA-Z0-9_@%+=:,./-]`)

// joinTokens is the text that splitTokens splits into tokens (codalab/lib/formatting.py:
// tokens_to_string).
func joinTokens(tokens []string) string {
	quoted := make([]string, len(tokens))
	for i, token := range tokens {
		quoted[i] = token
		if token == "" || unsafeInShell.MatchString(token) {
			quoted[i] = "'" + strings.ReplaceAll(token, "'", `'"'"'`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}
