package probe

import (
	"cmp"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Namespaces has the settings of a kernel about user namespaces of ordinary users. A text is empty where the kernel
// does not have the setting.
type Namespaces struct {
	// Max is user.max_user_namespaces: how many a user may have here at a time.
	Max string `json:"max,omitempty"`
	// Clone is kernel.unprivileged_userns_clone, of kernels of Debian and Arch.
	Clone string `json:"clone,omitempty"`
	// AppArmor is kernel.apparmor_restrict_unprivileged_userns, of Ubuntu from 23.10 on, and Profile the profile of this
	// process.
	AppArmor string `json:"apparmor,omitempty"`
	Profile  string `json:"profile,omitempty"`
	// Nested is set if this process is in a user namespace itself.
	Nested bool `json:"nested,omitempty"`
}

// LookAtNamespaces reads the settings of the host in root. An empty root means "/".
func LookAtNamespaces(root string) Namespaces {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(cmp.Or(root, "/"), name))
		if err != nil {
			return ""
		}
		return strings.TrimRight(strings.TrimSpace(string(text)), "\x00")
	}
	n := Namespaces{
		Max: read("proc/sys/user/max_user_namespaces"), Clone: read("proc/sys/kernel/unprivileged_userns_clone"),
		AppArmor: read("proc/sys/kernel/apparmor_restrict_unprivileged_userns"), Profile: read("proc/self/attr/apparmor/current"),
	}
	ids := strings.Fields(read("proc/self/uid_map"))
	n.Nested = len(ids) > 0 && strings.Join(ids, " ") != "0 0 4294967295"
	return n
}

// fewNamespaces is the number of user namespaces below which a node may have too few of them. A container takes two or
// three.
const fewNamespaces = 128

// checkNamespaces judges the user namespaces of a node by the trial of one and by the kernel's settings.
func (r Report) checkNamespaces() Check {
	const name = "user-namespaces"
	n := r.Facts.UserNamespaces
	lack := trimDot(r.Host.Namespaces.Lack)
	limit, err := strconv.Atoi(n.Max)
	switch {
	case lack == "" && err == nil && limit < fewNamespaces:
		return Fault(Warning, name, "user.max_user_namespaces is "+n.Max, "each container takes two or three: with more runs on the node at a time, some cannot begin there", "raise it to some thousands")
	case lack == "" && n.Nested:
		return Passed(name, "a process may make them, and is in one itself").Meaning("containers see only the ids that it maps")
	case lack == "":
		return Passed(name, "ordinary users may make them")
	}
	verdict, means := Failed, "no container can be set up without privileges"
	if r.Choice != nil {
		verdict, means = Warning, "only runtimes that need none can be used"
	}
	var do string
	switch {
	case n.Max == "0":
		do = "set the sysctl user.max_user_namespaces above 0, to some thousands"
	case n.Clone == "0":
		do = "set the sysctl kernel.unprivileged_userns_clone to 1"
	case n.AppArmor == "1" && strings.HasPrefix(cmp.Or(n.Profile, "unconfined"), "unconfined"):
		do = "set the sysctl kernel.apparmor_restrict_unprivileged_userns to 0, or give cl-worker and bwrap a profile of AppArmor with the rule userns"
	case n.Nested:
		do = "the job is in a user namespace itself: a container around slurmd has to allow further ones"
	default:
		do = "see whether a profile of SELinux or AppArmor, a filter of system calls or a kernel without CONFIG_USER_NS refuses them"
	}
	return Fault(verdict, name, lack, means, do)
}

func trimDot(s string) string { return strings.TrimSuffix(s, ".") }
