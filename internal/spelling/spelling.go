// Package spelling finds the word that a mistyped one was meant to be.
package spelling

// Nearest returns the word of list that is most similar to a mistyped word; empty if none is similar.
func Nearest(typed string, list []string) string {
	best, least := "", 1+len(typed)/3 // a third of the letters may be wrong
	for _, word := range list {
		if d := distance(typed, word); d < least || d == least && best == "" {
			best, least = word, d
		}
	}
	return best
}

// distance returns the number of letters that must be added, removed, changed or swapped with the
// next one to turn a into b (optimal string alignment).
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
