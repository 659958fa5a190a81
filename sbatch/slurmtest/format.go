package slurmtest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// field is a field of an output format, and the text before it.
type field struct {
	text   string
	letter byte // 0 for the text that ends the format
	width  int
	right  bool
}

// parseFormat reads the %[.][width]letter of squeue and sinfo.
func parseFormat(program, format string, known map[byte]string) ([]field, error) {
	var fields []field
	for format != "" {
		text, rest, ok := strings.Cut(format, "%")
		f := field{text: text}
		if !ok {
			return append(fields, f), nil
		}
		rest, f.right = strings.CutPrefix(rest, ".")
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		if digits > 0 {
			f.width, _ = strconv.Atoi(rest[:digits]) // digits
		}
		rest = rest[digits:]
		if rest == "" {
			return nil, fail(1, program+": error: Invalid job format specification: ")
		}
		f.letter, format = rest[0], rest[1:]
		if _, ok := known[f.letter]; !ok {
			return nil, &UnmodelledError{What: fmt.Sprintf("%s --format=%%%c", program, f.letter)}
		}
		fields = append(fields, f)
	}
	return fields, nil
}

// print prints a value as the format says.
func (f field) print(out *strings.Builder, value string) {
	out.WriteString(f.text)
	switch {
	case f.letter == 0:
		return
	case f.width > 0 && f.right:
		fmt.Fprintf(out, "%*.*s", f.width, f.width, value)
	case f.width > 0:
		fmt.Fprintf(out, "%-*.*s", f.width, f.width, value)
	default:
		out.WriteString(value)
	}
}

// span prints a duration as Slurm does: 1:00, 1:00:00, 2-00:00:00.
func span(d time.Duration) string {
	s := int64(d / time.Second)
	days, hours, minutes, seconds := s/86400, s/3600%24, s/60%60, s%60
	switch {
	case days > 0:
		return fmt.Sprintf("%d-%02d:%02d:%02d", days, hours, minutes, seconds)
	case hours > 0:
		return fmt.Sprintf("%d:%02d:%02d", hours, minutes, seconds)
	}
	return fmt.Sprintf("%d:%02d", minutes, seconds)
}

// taskList prints tasks of an array as squeue does: 1-3,7 or 2-20:2, and how
// many run at once.
func taskList(tasks []int, atOnce int) string {
	list := ""
	if stepped(tasks) {
		list = fmt.Sprintf("%d-%d:%d", tasks[0], tasks[len(tasks)-1], tasks[1]-tasks[0])
	} else {
		list = ranges(tasks)
	}
	if atOnce > 0 {
		list += "%" + strconv.Itoa(atOnce)
	}
	return list
}

// ranges prints numbers as 1-3,7.
func ranges(numbers []int) string {
	var parts []string
	for i := 0; i < len(numbers); {
		last := i
		for last+1 < len(numbers) && numbers[last+1] == numbers[last]+1 {
			last++
		}
		part := strconv.Itoa(numbers[i])
		if last > i {
			part += "-" + strconv.Itoa(numbers[last])
		}
		parts = append(parts, part)
		i = last + 1
	}
	return strings.Join(parts, ",")
}

// nodeList prints nodes as Slurm does: n1, n[1-3], n[1,3],login.
func nodeList(names []string) string {
	var prefixes []string
	numbers := map[string][]int{}
	for _, name := range names {
		prefix := strings.TrimRight(name, "0123456789")
		n, err := strconv.Atoi(name[len(prefix):])
		if err != nil {
			n = -1
		}
		if !slices.Contains(prefixes, prefix) {
			prefixes = append(prefixes, prefix)
		}
		numbers[prefix] = append(numbers[prefix], n)
	}
	for i, p := range prefixes {
		switch ns := numbers[p]; {
		case len(ns) > 1:
			slices.Sort(ns)
			prefixes[i] = p + "[" + ranges(ns) + "]"
		case ns[0] >= 0:
			prefixes[i] = p + strconv.Itoa(ns[0])
		}
	}
	return strings.Join(prefixes, ",")
}

// nodeNames reads n1,n3 and n[1-3].
func nodeNames(list string) ([]string, error) {
	prefix, set, ok := strings.Cut(list, "[")
	if !ok {
		return strings.Split(list, ","), nil
	}
	s := &spec{}
	s.setArray(strings.TrimSuffix(set, "]"))
	if len(s.tasks) == 0 || !strings.HasSuffix(list, "]") {
		return nil, &UnmodelledError{What: "the node list " + list}
	}
	names := make([]string, 0, len(s.tasks))
	for _, n := range s.tasks {
		names = append(names, prefix+strconv.Itoa(n))
	}
	return names, nil
}
