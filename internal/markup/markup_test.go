package markup

import (
	"runtime"
	"strings"
	"testing"
)

// Markup of users has no part of the page's own language.
func TestMarkupIsCleaned(t *testing.T) {
	t.Parallel()
	m := New()
	for text, want := range map[string]string{
		"$x_1 < y_1$ *a*": "<p><span class=\"math\">$x_1 &lt; y_1$</span> <em>a</em></p>\n", "$$\n\\frac{a}{b}\n$$": "<p><span class=\"math\">$$\n\\frac{a}{b}\n$$</span></p>\n",
		"$5 and $6, $ 7 $": "<p>$5 and $6, $ 7 $</p>\n", "`$a$`": "<p><code>$a$</code></p>\n", "$</span><script>x</script>$": "<p><span class=\"math\">$&lt;/span&gt;&lt;script&gt;x&lt;/script&gt;$</span></p>\n",
		"<span class='math skip'>a</span>": "<p><span>a</span></p>\n", "$": "<p>$</p>\n", "$$": "<p>$$</p>\n", "$$$$": "<p>$$$$</p>\n",
		"*a*": "<p><em>a</em></p>\n", "<script>x</script>": "", "[a](javascript:x)": "<p>a</p>\n", "<b hx-get=/x id=main class=skip>a</b>": "<p><b>a</b></p>\n",
		"<img src=http://evil.example/x.png onerror=x>": "", "![x](/rest/account/logout)": "<p><img alt=\"x\"></p>\n", "<img src='/runs/events?q=a'>": "",
		"![x](/rest/bundles/0x00000000000000000000000000000001/contents/blob/a.png)": "<p><img src=\"/rest/bundles/0x00000000000000000000000000000001/contents/blob/a.png\" alt=\"x\"></p>\n",
		"<img src='/rest/bundles/0x00000000000000000000000000000001/netcurl/80/x'>":  "",
	} {
		if got := string(m.Page().HTML(text)); got != want {
			t.Errorf("%q becomes %q instead of %q", text, got, want)
		}
	}
}

// hostile are texts of about size bytes, each with another way to become long or to take long.
func hostile(size int) map[string]string {
	fill := func(begin, unit string) string {
		return begin + strings.Repeat(unit, max(0, size-len(begin))/len(unit))
	}
	half := func(unit string) string { return strings.Repeat(unit, size/2/len(unit)) }
	third := func(unit string) string { return strings.Repeat(unit, size/3/len(unit)) }
	texts := map[string]string{
		"wide table":             third("| a ") + "|\n" + third("|---") + "|\n" + third("| b |\n"),
		"wide table in a quote":  "> " + third("| a ") + "|\n> " + third("|---") + "|\n" + third("> b |\n"),
		"many wide tables":       strings.Repeat(strings.Repeat("|a", 100)+"|\n"+strings.Repeat("|-", 100)+"|\n"+strings.Repeat("b|\n", 100)+"\n", size/700),
		"centred cells":          fill("|a|b|c|\n|:-:|:-:|:-:|\n", "||||\n"),
		"references":             "[a]: http://x/" + half("b") + "\n" + half("[a]"),
		"references of pictures": "[a]: /rest/bundles/0x00000000000000000000000000000001/contents/blob/" + half("b") + "\n" + half("![a]"),
		"references with titles": "[a]: //x '" + half("&") + "'\n" + half("[a]"),
		"short references":       fill("[a]: //x\n", "[a]"),
		"many references":        half("[a]: //x/y\n") + half("[a]"),
		"references before":      half("[a]") + "\n\n[a]: //x/" + half("\""),
		"pipes in code":          fill("|a|\n|-|\n", "|`\\|`\n"),
		"lists and empty lines":  strings.Repeat("- ", size/4) + "a" + half("\n"),
		"lists in lists":         strings.Repeat("- ", 90) + "a\n" + strings.Repeat(strings.Repeat(" ", 180)+"- a\n", size/190),
		"numbered lists":         strings.Repeat("1. ", size/6) + "a" + half("\n"),
		"lists in quotes":        strings.Repeat("> - ", size/8) + "a" + half("\n"),
		"footnotes":              "[^a]: " + half("b") + "\n\n" + half("[^a]"),
		"unclosed links":         fill("", "[a]("),
		"raw HTML":               fill("", "<a href=//x>"),
		"raw unclosed":           fill("", "<b>"),
		"headings":               fill("", "#\n"),
	}
	for _, unit := range []string{
		"$ ", "$a ", "$1", "$$", "$\\", "$ \n", ">", "> ", "- ", "* ", "*", "_", "*a ", "**a", "*a_ ", "~~a", "~", "[", "![", "]", "[]", "[a]", "![](a)", "<", "<a", "<!--", "<!-", "<?",
		"&", "&amp;", "&ngE;", "&#0;", "\"", "`", "``a`", "`a ", "\\", "|", "|-\n", "a|\n-|\n", "www.a.bc ", "http://a.bc ", "a@b.cd ", "<a:b>", "a\n", "\n", "-\n", "- a\n", "1.\n", "\t", "    a\n",
		"=\n", "a\n=\n", "~~~\n", "- [ ] a\n", "\x00", "\xff", "é", "![a](</rest/bundles/0x00000000000000000000000000000001/contents/blob/é>)", ":", "a:", "h", "http:", "www.", "@", "a@", "(", "[a](<", "[a](b '",
	} {
		texts["only "+unit] = fill("", unit)
	}
	return texts
}

// longest is the number of bytes that the HTML of a page with a text of a size may have: a text that is shown as it is written
// becomes up to five times as long.
func longest(size int) int { return atLeast + mostTimes*size + 200 }

// A text could take gigabytes: the rows of a table were filled to the width of its header, and each use of a reference had its
// whole address.
func TestMarkupIsBounded(t *testing.T) { //nolint:paralleltest // it counts what the process allocates
	m := New()
	const size, perByte = 65_000, 1500
	for name, text := range hostile(size) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got := m.Page().HTML(text)
		runtime.ReadMemStats(&after)
		if allocated := int(after.TotalAlloc - before.TotalAlloc); len(got) > longest(len(text)) || allocated > perByte*size {
			t.Errorf("%s: %d bytes become %d, for which %d are allocated", name, len(text), len(got), allocated)
		}
	}
}

// The texts of a page share what they may become.
func TestMarkupOfAPageIsBounded(t *testing.T) {
	t.Parallel()
	p, total, written := New().Page(), 0, 0
	text := "[a]: http://x/" + strings.Repeat("b", 300) + "\n\n" + strings.Repeat("[a]", 100)
	for range 500 {
		total += len(text)
		written += len(p.HTML(text))
	}
	if written > longest(total) {
		t.Errorf("texts of %d bytes become %d", total, written)
	}
	long := strings.Repeat("*a* bc\n\n", longestText/8)
	p = New().Page()
	for i, want := range []bool{true, true, true, true, false} {
		if got := strings.Contains(string(p.HTML(long)), "<em>"); got != want {
			t.Errorf("text %d is read as Markdown: %v", i, got)
		}
	}
	if got := New().Page().HTML(long + "\n"); strings.Contains(string(got), "<em>") {
		t.Error("a text of any length is read as Markdown")
	}
}

// Honest texts are far from the bounds.
func TestHonestMarkupHasNoBound(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"a table":       "|epoch|loss|acc|\n|:-|-:|:-:|\n" + strings.Repeat("|1|2|3|\n", 5000),
		"some columns":  strings.Repeat("|a", 20) + "|\n" + strings.Repeat("|-", 20) + "|\n" + strings.Repeat("|total|\n", 40),
		"a list":        strings.Repeat("- [a](/b) and *more*\n", 5000),
		"references":    "[a]: https://example.org/a/paper/with/a/long/address\n\n" + strings.Repeat("As [a] says, it is so.\n", 5000),
		"a rule":        strings.Repeat("- ", 40) + "\n\n" + strings.Repeat("-", 500) + "\n\n" + strings.Repeat("*", 500),
		"indented code": "```\n" + strings.Repeat(" ", 300) + "x = snake_case_name\n" + strings.Repeat("x_y_z = a * b * c\n", 3000) + "```\n",
		"emphasis":      strings.Repeat("*a* __b__\n", 500),
	} {
		if got := New().Page().HTML(text); strings.Contains(string(got), "as it is written") {
			t.Errorf("%s is not shown as markup", name)
		}
	}
	if got, want := New().Page().HTML("|a|\n|-:|\n|1|"), "<td align=\"right\">1</td>"; !strings.Contains(string(got), want) {
		t.Errorf("a table becomes %s", got)
	}
}

func FuzzMarkupIsBounded(f *testing.F) {
	for _, text := range hostile(300) {
		f.Add(text, 1)
		f.Add(text, 20)
	}
	m := New()
	f.Fuzz(func(t *testing.T, text string, times int) {
		text = strings.Repeat(text, max(1, min(times, 8_000/(len(text)+1))))
		got := string(m.Page().HTML(text))
		if len(got) > longest(len(text)) || strings.Contains(strings.ToLower(got), "<script") {
			t.Errorf("%q becomes %d bytes: %.1000s", text, len(got), got)
		}
	})
}
