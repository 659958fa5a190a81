package sbatch

import (
	"fmt"
	"strings"
)

// Program is a program that lies on a disk of a job's node. A batch script starts it only if it is the right one.
//
// A disk that several hosts share may be open to others by mistake, and whoever puts another program at the path has the
// account of the job. Slurm keeps the script itself where others cannot write.
type Program struct {
	Path string
	// SHA256 is the digest of the content, in lower-case hexadecimal; empty for a program that is not checked.
	SHA256 string
	// Stamp is the file's inode, size and time of its last change, as `stat -L -c '%i %s %.9Z'` prints them on this host;
	// empty if they are not known.
	Stamp string
}

// MismatchStatus is the exit status of a script whose program is not the right one. It is none of a command.
const MismatchStatus = 125

// Exec returns the lines of a batch script by which it becomes the program. The arguments are words of a shell; see Quote.
//
// To read a program of 26 MB and compute its digest takes more time than a container's start. So the script first
// compares the stamp. A file keeps its inode, and its time changes with each write, to a time that no user can set
// (inode(7): st_ctime): a file of the same stamp is the one of which the submitter has computed the digest. Some
// disks show other inodes on other hosts, and the file may have been moved; then the script computes the digest.
func (p Program) Exec(args ...string) string {
	words := append([]string{"exec", Quote(p.Path)}, args...)
	return p.check() + strings.Join(words, " ") + "\n"
}

// check returns the lines that end a script unless the program is the right one. openssl computes a digest several
// times as fast as the sha256sum of some systems.
func (p Program) check() string {
	if p.SHA256 == "" {
		return ""
	}
	return fmt.Sprintf(`p=%s
if [ "$(stat -L -c '%%i %%s %%.9Z' "$p" 2>&1)" != '%s' ]; then
  case "$(openssl dgst -sha256 -r <"$p" 2>/dev/null || sha256sum <"$p" 2>&1)" in
  %s\ *) ;;
  *) echo "$p is not the program that was put there, or openssl and sha256sum are missing: it was not started" >&2; exit %d ;;
  esac
fi
`, Quote(p.Path), p.Stamp, p.SHA256, MismatchStatus)
}
