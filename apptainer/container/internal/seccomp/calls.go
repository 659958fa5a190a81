package seccomp

// call is a system call with its number in each table.
type call struct {
	name string
	numbers
}

// none is the number of a call that a table does not have.
const none = -1

// numbers are a call's numbers in the tables of Linux (arch/*/**/syscall*.tbl, scripts/syscall.tbl).
type numbers [6]int

// Tables, as indexes of numbers.
const (
	tableAMD64 = iota
	tableI386
	tableGeneric // of arm64 and riscv64
	tableARM
	tablePPC64LE
	tableS390X
)

// everywhere is for calls since Linux 5.1, which have the same number in all tables.
func everywhere(n int) numbers { return numbers{n, n, n, n, n, n} }

// lastCall is the last call that Docker's profile decides about, removexattrat of Linux 6.13.
const lastCall = 466

// keyCalls deal with the kernel's keys (keyrings(7)). The kernel checks keys by the user, and no
// namespace of a container separates them. All bundles of an account are one user to it. So a
// command could read the keys of the account and of its other bundles by their numbers, which are
// 32-bit and listed in /proc/keys.
func keyCalls() []call {
	return []call{
		{"add_key", numbers{248, 286, 217, 309, 269, 278}},
		{"keyctl", numbers{250, 288, 219, 311, 271, 280}},
		{"request_key", numbers{249, 287, 218, 310, 270, 279}},
	}
}

// refusedCalls are the calls that Docker's default profile refuses and that a kernel may have.
//
//nolint:funlen // a table
func refusedCalls() []call {
	return []call{
		// Mounts and namespaces.
		{"fsconfig", everywhere(431)},
		{"fsmount", everywhere(432)},
		{"fsopen", everywhere(430)},
		{"fspick", everywhere(433)},
		{"mount", numbers{165, 21, 40, 21, 21, 21}},
		{"mount_setattr", everywhere(442)},
		{"move_mount", everywhere(429)},
		{"open_tree", everywhere(428)},
		{"pivot_root", numbers{155, 217, 41, 218, 203, 217}},
		{"setns", numbers{308, 346, 268, 375, 350, 339}},
		{"umount", numbers{none, 22, none, none, 22, 22}},
		{"umount2", numbers{166, 52, 39, 52, 52, 52}},
		{"unshare", numbers{272, 310, 97, 337, 282, 303}},
		// The machine.
		{"acct", numbers{163, 51, 89, 51, 51, 51}},
		{"clock_settime", numbers{227, 264, 112, 262, 245, 259}},
		{"clock_settime64", numbers{none, 404, none, 404, none, none}},
		{"delete_module", numbers{176, 129, 106, 129, 129, 129}},
		{"finit_module", numbers{313, 350, 273, 379, 353, 344}},
		{"init_module", numbers{175, 128, 105, 128, 128, 128}},
		{"ioperm", numbers{173, 101, none, none, 101, none}},
		{"iopl", numbers{172, 110, none, none, 110, none}},
		{"kexec_file_load", numbers{320, none, 294, 401, 382, 381}},
		{"kexec_load", numbers{246, 283, 104, 347, 268, 277}},
		{"pciconfig_iobase", numbers{none, none, none, 271, 200, none}},
		{"pciconfig_read", numbers{none, none, none, 272, 198, none}},
		{"pciconfig_write", numbers{none, none, none, 273, 199, none}},
		{"reboot", numbers{169, 88, 142, 88, 88, 88}},
		{"rtas", numbers{none, none, none, none, 255, none}},
		{"s390_guarded_storage", numbers{none, none, none, none, none, 378}},
		{"s390_sthyi", numbers{none, none, none, none, none, 380}},
		{"setdomainname", numbers{171, 121, 162, 121, 121, 121}},
		{"sethostname", numbers{170, 74, 161, 74, 74, 74}},
		{"settimeofday", numbers{164, 79, 170, 79, 79, 79}},
		{"stime", numbers{none, 25, none, none, 25, none}},
		{"swapoff", numbers{168, 115, 225, 115, 115, 115}},
		{"swapon", numbers{167, 87, 224, 87, 87, 87}},
		{"syslog", numbers{103, 103, 116, 103, 103, 103}},
		{"vhangup", numbers{153, 111, 58, 111, 111, 111}},
		// Parts of the kernel that are large, and seldom used in a container.
		{"bpf", numbers{321, 357, 280, 386, 361, 351}},
		{"io_uring_enter", everywhere(426)},
		{"io_uring_register", everywhere(427)},
		{"io_uring_setup", everywhere(425)},
		{"perf_event_open", numbers{298, 336, 241, 364, 319, 331}},
		{"uprobe", numbers{336, none, none, none, none, none}},
		{"userfaultfd", numbers{323, 374, 282, 388, 364, 355}},
		{"vm86", numbers{none, 166, none, none, 113, none}},
		{"vm86old", numbers{none, 113, none, none, none, none}},
		// Other processes, and pages of memory.
		{"kcmp", numbers{312, 349, 272, 378, 354, 343}},
		{"migrate_pages", numbers{256, 294, 238, 400, 258, 287}},
		{"move_pages", numbers{279, 317, 239, 344, 301, 310}},
		{"pidfd_getfd", everywhere(438)},
		{"process_madvise", everywhere(440)},
		// Files by other means than their names, and quotas.
		{"fanotify_init", numbers{300, 338, 262, 367, 323, 332}},
		{"lookup_dcookie", numbers{212, 253, 18, 249, 235, 110}},
		{"open_by_handle_at", numbers{304, 342, 265, 371, 346, 336}},
		{"quotactl", numbers{179, 131, 60, 131, 131, 131}},
		{"quotactl_fd", everywhere(443)},
		// Security modules.
		{"lsm_get_self_attr", everywhere(459)},
		{"lsm_list_modules", everywhere(461)},
		{"lsm_set_self_attr", everywhere(460)},
		// Obsolete.
		{"_sysctl", numbers{156, 149, none, 149, 149, 149}},
		{"nice", numbers{none, 34, none, 34, 34, 34}},
		{"oldfstat", numbers{none, 28, none, none, 28, none}},
		{"oldlstat", numbers{none, 84, none, none, 84, none}},
		{"oldolduname", numbers{none, 59, none, none, 59, none}},
		{"oldstat", numbers{none, 18, none, none, 18, none}},
		{"olduname", numbers{none, 109, none, none, 109, none}},
		{"readdir", numbers{none, 89, none, none, 89, 89}},
		{"sgetmask", numbers{none, 68, none, none, 68, none}},
		{"sigaction", numbers{none, 67, none, 67, 67, 67}},
		{"signal", numbers{none, 48, none, none, 48, 48}},
		{"sigpending", numbers{none, 73, none, 73, 73, 73}},
		{"sigsuspend", numbers{none, 72, none, 72, 72, 72}},
		{"spu_create", numbers{none, none, none, none, 279, none}},
		{"spu_run", numbers{none, none, none, none, 278, none}},
		{"ssetmask", numbers{none, 69, none, none, 69, none}},
		{"subpage_prot", numbers{none, none, none, none, 310, none}},
		{"switch_endian", numbers{none, none, none, none, 363, none}},
		{"sys_debug_setcontext", numbers{none, none, none, none, 256, none}},
		{"sysfs", numbers{139, 135, none, 135, 135, 135}},
		{"uselib", numbers{134, 86, none, 86, 86, 86}},
		{"ustat", numbers{136, 62, none, 62, 62, 62}},
	}
}

// Calls that a filter decides about by an argument, or in another way than the rest.
func cloneCall() numbers       { return numbers{56, 120, 220, 120, 120, 120} }
func clone3Call() numbers      { return everywhere(435) }
func personalityCall() numbers { return numbers{135, 136, 92, 136, 136, 136} }
func socketCall() numbers      { return numbers{41, 359, 198, 281, 326, 359} }
func mknodCall() numbers       { return numbers{133, 14, none, 14, 14, 14} }
func mknodatCall() numbers     { return numbers{259, 297, 33, 324, 288, 290} }

// ownerCalls change the owner of a file, or the ids or capabilities of a process
// (hpc/charliecloud, bin/ch_core.c: FAKE_SYSCALL_NRS).
func ownerCalls() []call {
	return []call{
		{"capset", numbers{126, 185, 91, 185, 184, 185}},
		{"chown", numbers{92, 182, none, 182, 181, 212}},
		{"chown32", numbers{none, 212, none, 212, none, none}},
		{"fchown", numbers{93, 95, 55, 95, 95, 207}},
		{"fchown32", numbers{none, 207, none, 207, none, none}},
		{"fchownat", numbers{260, 298, 54, 325, 289, 291}},
		{"lchown", numbers{94, 16, none, 16, 16, 198}},
		{"lchown32", numbers{none, 198, none, 198, none, none}},
		{"setfsgid", numbers{123, 139, 152, 139, 139, 216}},
		{"setfsgid32", numbers{none, 216, none, 216, none, none}},
		{"setfsuid", numbers{122, 138, 151, 138, 138, 215}},
		{"setfsuid32", numbers{none, 215, none, 215, none, none}},
		{"setgid", numbers{106, 46, 144, 46, 46, 214}},
		{"setgid32", numbers{none, 214, none, 214, none, none}},
		{"setgroups", numbers{116, 81, 159, 81, 81, 206}},
		{"setgroups32", numbers{none, 206, none, 206, none, none}},
		{"setregid", numbers{114, 71, 143, 71, 71, 204}},
		{"setregid32", numbers{none, 204, none, 204, none, none}},
		{"setresgid", numbers{119, 170, 149, 170, 169, 210}},
		{"setresgid32", numbers{none, 210, none, 210, none, none}},
		{"setresuid", numbers{117, 164, 147, 164, 164, 208}},
		{"setresuid32", numbers{none, 208, none, 208, none, none}},
		{"setreuid", numbers{113, 70, 145, 70, 70, 203}},
		{"setreuid32", numbers{none, 203, none, 203, none, none}},
		{"setuid", numbers{105, 23, 146, 23, 23, 213}},
		{"setuid32", numbers{none, 213, none, 213, none, none}},
	}
}
