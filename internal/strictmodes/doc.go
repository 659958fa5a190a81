// Package strictmodes finds out who besides an account can write or replace a file, and refuses secrets that others
// can read. sshd does the same for keys, under the name StrictModes.
//
// # Own paths
//
// A program that starts what lies at a path gives its account to everybody who can put something else there. So
// [Account.Check] follows a path from the root directory, as the kernel does, and judges each directory and symbolic
// link on the way:
//
//   - The owner is the account or root. The owner of a directory can open it to others at any time.
//   - Nobody else may write there, by the mode or by an access control list.
//   - A directory above may be open to others if it is sticky, such as /tmp: others can then rename only what is
//     theirs (inode(7)). The last directory may not, because others could make files in it.
//
// This is safe_path of OpenSSH's misc.c, with these differences: OpenSSH reads no access control lists, follows no
// links by itself, and refuses sticky directories.
//
// # Groups
//
// The group of which the account is the only member counts as the account, because Debian gives each user such a group,
// and a umask by which it may write. Debian's OpenSSH has the same exception (debian/patches/user-group-modes.patch). An
// operator can trust more users and groups ([Account.Trust]).
//
// # Limits
//
// The answer is about now. It holds as long as neither the account nor root changes the modes. The checks read POSIX
// lists (acl(5)) and those of a mounted NFSv4 (nfs4_acl(5)), and no lists of other file systems. Members of groups are those
// in /etc/passwd and /etc/group; a group that is not there has unknown members.
package strictmodes
