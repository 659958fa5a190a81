package codalab

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// A run asks to be resumed by a tag, resume=N, because CodaLab's own server refuses metadata that it does not know, and
// puts tags into its run messages. CodaLab's own worker takes no notice of the tag.

// MaxResumes is the largest number of times that a run may ask to be resumed.
const MaxResumes = 1000

// resumeTag begins the tag.
const resumeTag = "resume="

// ResumeTag returns the tag of a run that asks to be resumed up to n times.
func ResumeTag(n int) string { return resumeTag + strconv.Itoa(n) }

// ParseResumes reads a number of times that a run may be resumed.
func ParseResumes(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n > MaxResumes {
		return 0, fmt.Errorf("a number from 0 to %d, not %q", MaxResumes, text)
	}
	return int(n), nil
}

// ResumeTags returns the tags by which a run asks to be resumed, right and wrong ones.
func (m Metadata) ResumeTags() []string {
	var tags []string
	for _, tag := range m.Strings("tags") {
		if strings.HasPrefix(tag, resumeTag) {
			tags = append(tags, tag)
		}
	}
	return tags
}

// Resumes returns the number of times that a run may be resumed; 0 for a run that does not ask for it. Of several tags
// the last one counts. The error of a wrong tag is one sentence.
func (m Metadata) Resumes() (int, error) {
	times := 0
	for _, tag := range m.ResumeTags() {
		n, err := ParseResumes(strings.TrimPrefix(tag, resumeTag))
		if err != nil {
			return 0, errors.New("The tag " + strconv.Quote(tag) + " does not say how often the run may be resumed: give it " + err.Error() + ".")
		}
		times = n
	}
	return times, nil
}

// SetResumes lets a run ask to be resumed up to n times, in place of what it asked before.
func (m Metadata) SetResumes(n int) {
	tags := []string{}
	for _, tag := range m.Strings("tags") {
		if !strings.HasPrefix(tag, resumeTag) {
			tags = append(tags, tag)
		}
	}
	if n > 0 {
		tags = append(tags, ResumeTag(n))
	}
	m["tags"] = tags
}
