package markup

import (
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
		if got := string(m.HTML(text)); got != want {
			t.Errorf("%q becomes %q instead of %q", text, got, want)
		}
	}
}

// Texts that once took minutes: each dollar was compared with all text behind it, and quotes in quotes with each other.
func TestHostileMarkupIsReadSoon(t *testing.T) {
	t.Parallel()
	m := New()
	for _, unit := range []string{"$ ", "$a ", "$1", "$$", "$\\", "$ \n", ">", "> "} {
		const size = 200_000
		if got := m.HTML(strings.Repeat(unit, size/len(unit))); got == "" {
			t.Errorf("%q becomes nothing", unit)
		}
	}
}
