// Package subids uses a user's subordinate ids. A site may give each user a range of user and group
// ids of its own, in /etc/subuid and /etc/subgid (subuid(5)), and the programs newuidmap and
// newgidmap map them into the user's namespaces. A container then has all ids that an image uses:
//
//	in the container     outside
//	0, root              the user, and the group of the process
//	1 to 65535           the first ids of the user's ranges
//
// Files of these ids can remain where a container wrote, if its processes were killed. The user may
// not open their closed directories, and may not remove them. [Reclaim] makes the user their owner.
package subids
