package pages

import "testing"

func TestTextOfAFormIsThatOfWedit(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]string{
		"": "", "a": "a", "a\r\n": "a", "a\r\nb  \r\n": "a\nb  ", "a\n\nb": "a\n\nb", "\r\na": "\na", "  a\t": "  a\t",
	} {
		if got := editedText(field); got != want {
			t.Errorf("%q becomes %q instead of %q", field, got, want)
		}
	}
}
