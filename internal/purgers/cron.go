package purgers

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// tmpreaper returns the rules of /etc/tmpreaper.conf (Debian's tmpreaper).
func (h host) tmpreaper() []Rule {
	const name = "/etc/tmpreaper.conf"
	age, dirs := 7*24*time.Hour, []string{"/tmp"}
	lines := h.lines(name)
	for _, line := range lines {
		key, value, _ := strings.Cut(line, "=")
		value = strings.Trim(value, `'" `)
		switch strings.TrimSpace(key) {
		case "TMPREAPER_TIME":
			age = toolAge(value)
		case "TMPREAPER_DIRS":
			dirs = strings.Fields(value)
		case "SHOWWARNING":
			if value == "true" {
				return nil // it removes nothing until an administrator has read the warning
			}
		}
	}
	var rules []Rule
	if len(lines) > 0 {
		for _, dir := range dirs {
			rules = append(rules, Rule{By: "tmpreaper", Source: name, Dir: path.Clean(dir), Age: age})
		}
	}
	return rules
}

// cron returns the rules in cron's files and in the scripts that it calls. A line is a rule if it calls one of the
// programs and names a directory.
func (h host) cron(target string) []Rule {
	var rules []Rule
	for _, name := range h.files("/etc/crontab", "/etc/cron.d/*", "/etc/cron.hourly/*", "/etc/cron.daily/*", "/etc/cron.weekly/*", "/etc/cron.monthly/*") {
		for _, line := range h.lines(name) {
			for _, r := range h.parseCron(line, target) {
				r.Source = name
				rules = append(rules, r)
			}
		}
	}
	return rules
}

// between separates the commands of a line of a shell.
var between = regexp.MustCompile(`\|\||&&|;|\|`)

// parseCron returns the rules of a line. A line takes a target out by an option -x or --exclude of tmpwatch, or
// --protect of tmpreaper.
func (h host) parseCron(line, target string) (rules []Rule) {
	commands := between.Split(line, -1)
	for i, command := range commands {
		words := strings.Fields(command)
		for j, word := range words {
			words[j] = strings.Trim(word, `'"{}`)
		}
		at := slices.IndexFunc(words, func(word string) bool {
			return slices.Contains([]string{"tmpwatch", "tmpreaper", "find"}, path.Base(word))
		})
		if at < 0 {
			continue
		}
		by, args := path.Base(words[at]), words[at+1:]
		if by == "find" {
			rules = append(rules, parseFind(args, i+1 < len(commands) && strings.Contains(commands[i+1], "rm"))...)
			continue
		}
		rules = append(rules, h.parseTool(by, args, target)...)
	}
	return rules
}

// parseTool reads the arguments of tmpwatch or tmpreaper: options, an age, directories.
func (h host) parseTool(by string, args []string, target string) (rules []Rule) {
	var age time.Duration
	for i := 0; i < len(args); i++ {
		option, value, _ := strings.Cut(args[i], "=")
		switch {
		case slices.Contains([]string{"-x", "--exclude", "--protect", "-X", "--exclude-pattern"}, option):
			if value == "" && i+1 < len(args) {
				i++
				value = args[i]
			}
			if h.covers(value, target) {
				return nil
			}
		case strings.HasPrefix(args[i], "-"):
		case path.IsAbs(args[i]):
			rules = append(rules, Rule{By: by, Dir: path.Clean(args[i]), Age: age})
		case age == 0:
			age = toolAge(args[i])
		}
	}
	return rules
}

// toolAge reads an age of tmpwatch or tmpreaper, such as 30d. A number without a unit is in hours (tmpwatch(8)). It returns
// 0 for another text.
func toolAge(text string) time.Duration {
	if n, err := strconv.ParseInt(text, 10, 32); err == nil {
		return time.Duration(n) * time.Hour
	}
	age, ok := parseAge(text)
	if !ok {
		return 0
	}
	return age
}

// parseFind reads the arguments of find: directories, then tests. It returns no rule without an age and a removal.
// removes tells that the command's output goes to rm.
func parseFind(args []string, removes bool) (rules []Rule) {
	var age time.Duration
	for i, arg := range args {
		switch unit := map[string]time.Duration{"time": 24 * time.Hour, "min": time.Minute}; {
		case arg == "-delete" || arg == "rm" || strings.HasSuffix(arg, "/rm"):
			removes = true
		case len(arg) > 2 && strings.HasPrefix(arg, "-") && strings.IndexByte("acm", arg[1]) >= 0 && unit[arg[2:]] > 0 && i+1 < len(args):
			if n, err := strconv.ParseInt(strings.TrimPrefix(args[i+1], "+"), 10, 32); err == nil {
				age = time.Duration(n) * unit[arg[2:]]
			}
		}
	}
	if !removes || age == 0 {
		return nil
	}
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") {
			break
		}
		if path.IsAbs(arg) {
			rules = append(rules, Rule{By: "find", Dir: path.Clean(arg), Age: age})
		}
	}
	return rules
}
