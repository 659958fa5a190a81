package bundlelogs

import (
	"fmt"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/admin/status"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// Text returns the logs for people.
func Text(l Logs, now time.Time) string {
	var b strings.Builder
	b.WriteString(status.ExplanationText(l.Explanation, now))
	title(&b, "The bridge's log: "+l.Source)
	if l.LogTrouble != "" {
		fmt.Fprintf(&b, "(%s; --log FILE searches a log that is kept elsewhere)\n", l.LogTrouble)
	}
	for _, line := range l.Lines {
		b.WriteString(line + "\n")
	}
	for _, a := range l.Attempts {
		title(&b, "Attempt "+a.Name+": "+a.Dir)
		if a.RunDir != "" {
			fmt.Fprintf(&b, "Its files are in %s.\n", a.RunDir)
		}
		for _, f := range a.Files {
			b.WriteString(head(f))
			b.WriteString(asLines(f.Text))
		}
	}
	if len(l.Attempts) == 0 {
		b.WriteString("\nThere are no files of an attempt: none has begun, or keep_after_ack has passed since the bundle's end.\n")
	}
	return b.String()
}

func title(b *strings.Builder, text string) { b.WriteString("\n=== " + text + "\n") }

// head is the line above a file's content.
func head(f File) string {
	said := "\n--- " + f.Name
	switch {
	case f.Trouble != "":
		said += ", which cannot be read: " + f.Trouble
	case f.Size > int64(len(f.Text)):
		said += ", the end of " + codalab.FormatSize(f.Size)
	case f.Size == 0:
		said += ", which is empty"
	}
	return said + "\n"
}

// asLines ends a text with a line feed, and makes lines of the parts that a carriage return would hide.
func asLines(text string) string {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text
}
